"""Finds the classes and functions that a record names; nothing else in Holdfast does.

Anyone who can write to the storage can write a record, and its seal is no signature. So a name in
it is trusted only as far as the call at hand needs:

* `LOOKING`: only Holdfast classes that are loaded already and whose constructors touch nothing
  outside. Nothing is imported, and no function is returned.
* `RESTORING`, for a script that resumes a study or run: Holdfast classes, and user classes whose
  module the script has loaded itself. A class that is called must derive from `Made` or be a
  dataclass that only holds its fields; a function, or a class that is passed on uncalled, must
  belong to the script: not to Python, and not to an installed package.
* `RUNNING`, for the deprecated `restore(path)` of a trainer, which gets nothing but the path and
  unpickles what is there: whatever can be imported.

Except for `RUNNING`, a name counts only in the module that *defines* the object, never in one that
imports it. `docs/decisions/0014-data-at-rest-runs-nothing.md` says why.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import os
import sys
import sysconfig
from types import FunctionType, MethodType, ModuleType
from typing import Any

from holdfast.api.imports import import_path
from holdfast.api.recorded_call import Made

# Packages with the classes that records may hold: configs, schedulers, searchers, stoppers.
_OUR_HOMES = (
    "holdfast.air",
    "holdfast.api",
    "holdfast.data",
    "holdfast.frameworks",
    "holdfast.train",
    "holdfast.tune",
)
_OUR_FUNCTIONS = "holdfast.tune.schedulers."  # functions that compute the resources of trials
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # also of another environment
_BUILTINS = (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)


class Trust(enum.Enum):
    """How far a name in a record is trusted; see the module's docstring."""

    LOOKING = "looking"
    RESTORING = "restoring"
    RUNNING = "running"


class NameRefused(LookupError):
    """A record names something that does not exist, or that a record must not name."""

    def __str__(self) -> str:
        return str(self.args[0])


def recorded_class(path: object, trust: Trust) -> type[Made]:
    """Return a class to call with recorded arguments; raise `NameRefused`."""
    kind = _defined_at(path, trust)
    if not isinstance(kind, type) or not issubclass(kind, Made) or not kind.may_be_recorded:
        raise NameRefused(f"{_shown(path)} is not a class that a record may build")
    if trust is Trust.LOOKING and kind.made_needs_files:
        raise NameRefused(
            f"{_shown(path)} reads files when it is built, and this is a read-only view"
        )
    return kind


def recorded_dataclass(path: object, trust: Trust) -> type[Any]:
    """Return a dataclass of Holdfast, or one that only holds its fields; raise `NameRefused`."""
    kind = _defined_at(path, trust)
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise NameRefused(f"{_shown(path)} is not a dataclass")
    if not _is_ours(kind.__module__) and not only_holds_fields(kind):
        raise NameRefused(f"{_shown(path)} is a dataclass that does more than hold its fields")
    return kind


def recorded_thing(path: object, trust: Trust) -> Any:
    """Return a function or class to pass on uncalled; raise `NameRefused`."""
    if trust is Trust.LOOKING:
        raise NameRefused(f"{_shown(path)} is not needed for a read-only view")
    thing = _defined_at(path, trust)
    if trust is Trust.RUNNING:
        return thing
    module: str = thing.__module__
    is_ours = _is_ours(module) and (isinstance(thing, type) or module.startswith(_OUR_FUNCTIONS))
    if is_ours or thing in _BUILTINS or _is_users(module):
        return thing
    raise NameRefused(
        f"{_shown(path)} is not part of your script, and a record alone is no reason to use it"
    )


def class_path(kind: type) -> str | None:
    """Return the path that finds a class again, also in `__main__`; None if there is none."""
    path = import_path(kind)
    main = sys.modules.get("__main__")
    if path is None and main is not None and getattr(main, kind.__qualname__, None) is kind:
        return f"__main__:{kind.__qualname__}"
    return path


def only_holds_fields(kind: type[Any]) -> bool:
    """Whether building an instance runs no code but what `dataclasses` generated."""
    params = kind.__dict__.get("__dataclass_params__")
    return (
        type(kind) is type
        and params is not None
        and params.init
        and not hasattr(kind, "__post_init__")
        and getattr(kind, "__new__") is object.__new__  # noqa: B009  # mypy knows better
        and kind.__setattr__ is (_frozen_setattr(kind) if params.frozen else object.__setattr__)
        and all(field.init for field in dataclasses.fields(kind))
    )


# ---------------------------------------------------------------------- finding


def _defined_at(path: object, trust: Trust) -> Any:
    module, name = _parts(path)
    home = sys.modules.get(module)
    if home is None and _may_import(module, trust):
        try:
            home = importlib.import_module(module)
        except Exception as error:
            raise NameRefused(f"{module} cannot be imported: {error}") from error
    if not isinstance(home, ModuleType):
        raise NameRefused(f"{_shown(path)} is in a module that this process has not imported")
    if trust is Trust.LOOKING and not _is_ours(module):
        raise NameRefused(f"{_shown(path)} is not part of Holdfast")
    thing = _inside(home, name)
    if trust is Trust.RUNNING and thing is not None:
        return thing  # whatever the code behind that name has become since
    own_name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(thing, type | FunctionType | MethodType) or own_name != (module, name):
        place = "the script that runs now" if module == "__main__" else module
        raise NameRefused(f"there is no {name} defined in {place}")
    return thing


def _parts(path: object) -> tuple[str, str]:
    if isinstance(path, str):
        module, _, name = path.partition(":")
        if all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
            return module, name
    raise NameRefused(f"{_shown(path)} is not the path of a class or function")


def _may_import(module: str, trust: Trust) -> bool:
    if trust is Trust.RUNNING:
        return True
    return trust is Trust.RESTORING and _is_ours(module) and not module.endswith(".__main__")


def _inside(home: ModuleType, name: str) -> Any:
    """Return a dotted name from the namespaces of a module and its classes; runs no code."""
    namespace: Any = None
    value: Any = home
    for part in name.split("."):
        namespace = value
        if not isinstance(namespace, type | ModuleType) or part not in vars(namespace):
            return None
        value = vars(namespace)[part]
    if isinstance(value, staticmethod | classmethod):
        return value.__get__(None, namespace)
    return value


def _is_ours(module: str) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in _OUR_HOMES)


def _is_users(module: str) -> bool:
    """Whether a module belongs to the user's script, not to Python or an installed package."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    outermost = module.partition(".")[0]
    if not isinstance(file, str) or outermost in ("holdfast", *sys.stdlib_module_names):
        return False
    folder = os.path.dirname(os.path.realpath(file))
    if not _INSTALLED.isdisjoint(folder.split(os.sep)):
        return False
    return not any(folder == home or folder.startswith(home + os.sep) for home in _python_folders())


@functools.cache
def _python_folders() -> tuple[str, ...]:
    """Return the folders of Python itself and of the packages installed for it."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.realpath(folder) for folder in folders})


def _frozen_setattr(kind: type[Any]) -> Any:
    """Return the `__setattr__` that `dataclasses` generated for a frozen class, else None."""
    setter = kind.__setattr__
    code = getattr(inspect.unwrap(setter), "__code__", None)
    return setter if code is not None and code.co_filename == "<string>" else None


def _shown(path: object) -> str:
    text = path if isinstance(path, str) else repr(path)
    return text if len(text) <= 200 else f"{text[:200]}…"
