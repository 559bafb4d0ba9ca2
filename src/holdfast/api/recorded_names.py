"""Finds the classes and functions that a record names; nothing else in Holdfast does.

A record is data that anybody may have written who can write to the storage, and its seal is no
signature. So a name in it is believed only as far as the call at hand needs:

* `LOOKING`: only classes of ours that are loaded, and that touch nothing outside when they are
  made. Nothing is imported, and no function is ever found.
* `RESTORING`, for a script that goes on with a study or run: classes of ours, and of the user's
  those whose module the script has loaded itself. A class that is called must derive from one of
  our bases (`Made`) or be a dataclass that only holds its fields; a function, or a class that is
  passed on as it is, must belong to the script: not to Python, and not to an installed package.
* `RUNNING`, for the deprecated `restore(path)` of a trainer, which is given nothing but the path
  and unpickles what is there: whatever can be imported.

A name is never a way through what a module has imported, and but for `RUNNING` it counts only where
the thing is *defined*. `docs/decisions/0014-data-at-rest-runs-nothing.md` says why.
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

from holdfast.api.recorded_call import Made

# Where the classes of ours are that records hold: configs, schedulers, searchers, stoppers.
_OUR_HOMES = (
    "holdfast.air",
    "holdfast.api",
    "holdfast.data",
    "holdfast.frameworks",
    "holdfast.train",
    "holdfast.tune",
)
_OUR_FUNCTIONS = "holdfast.tune.schedulers."  # those that tell what resources trials get
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # also of another environment
_BUILTINS = (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)


class Trust(enum.Enum):
    """How far a name in a record is believed; see the module's docstring."""

    LOOKING = "looking"
    RESTORING = "restoring"
    RUNNING = "running"


class NameRefused(LookupError):
    """What a record names is not there, or is nothing that a record may name; says which."""

    def __str__(self) -> str:
        return str(self.args[0])


def recorded_class(path: object, trust: Trust) -> type[Made]:
    """Return a class that is to be called with what the record says; raise `NameRefused`."""
    kind = _defined_at(path, trust)
    if not isinstance(kind, type) or not issubclass(kind, Made) or not kind.may_be_recorded:
        raise NameRefused(f"{_shown(path)} is nothing that is made from a record")
    if trust is Trust.LOOKING and kind.made_needs_files:
        raise NameRefused(f"{_shown(path)} reads files when it is made, and this is only a look")
    return kind


def recorded_dataclass(path: object, trust: Trust) -> type[Any]:
    """Return a dataclass that only holds its fields, or is ours; raise `NameRefused`."""
    kind = _defined_at(path, trust)
    if not isinstance(kind, type) or not dataclasses.is_dataclass(kind):
        raise NameRefused(f"{_shown(path)} is no dataclass")
    if not _is_ours(kind.__module__) and not only_holds_fields(kind):
        raise NameRefused(f"{_shown(path)} is a dataclass that does more than hold its fields")
    return kind


def recorded_thing(path: object, trust: Trust) -> Any:
    """Return a function or class that is passed on, not called; raise `NameRefused`."""
    if trust is Trust.LOOKING:
        raise NameRefused(f"{_shown(path)} is not needed for a look")
    found = _defined_at(path, trust)
    if trust is Trust.RUNNING:
        return found
    module: str = found.__module__
    is_ours = _is_ours(module) and (isinstance(found, type) or module.startswith(_OUR_FUNCTIONS))
    if is_ours or found in _BUILTINS or _is_own(module):
        return found
    raise NameRefused(
        f"{_shown(path)} is not part of your script, and a record alone is no reason to use it"
    )


def class_path(kind: type) -> str | None:
    """Return by what a class is found again: also one of the script that was run."""
    from holdfast.api.imports import import_path

    path = import_path(kind)
    main = sys.modules.get("__main__")
    if path is None and main is not None and getattr(main, kind.__qualname__, None) is kind:
        return f"__main__:{kind.__qualname__}"
    return path


def only_holds_fields(kind: type[Any]) -> bool:
    """Whether an instance of a dataclass comes to be without any code but that of dataclasses."""
    given = kind.__dict__.get("__dataclass_params__")
    return (
        type(kind) is type
        and given is not None
        and given.init
        and not hasattr(kind, "__post_init__")
        and getattr(kind, "__new__") is object.__new__  # noqa: B009  # mypy knows better
        and kind.__setattr__ is (_frozen_setattr(kind) if given.frozen else object.__setattr__)
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
        raise NameRefused(f"{_shown(path)} is none of Holdfast's own")
    found = _inside(home, name)
    if trust is Trust.RUNNING and found is not None:
        return found  # under that name, whatever the source has become since
    named = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not isinstance(found, type | FunctionType | MethodType) or named != (module, name):
        place = "the script that runs now" if module == "__main__" else module
        raise NameRefused(f"there is no {name} defined in {place}")
    return found


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
    """Return what a module, or a class in it, has in its own namespace; nothing is computed."""
    inside: Any = home
    found: Any = None
    for part in name.split("."):
        if found is not None:
            inside = found
        if not isinstance(inside, type | ModuleType) or part not in vars(inside):
            return None
        found = vars(inside)[part]
    if isinstance(found, staticmethod | classmethod):
        return found.__get__(None, inside)
    return found


def _is_ours(module: str) -> bool:
    return any(module == home or module.startswith(f"{home}.") for home in _OUR_HOMES)


def _is_own(module: str) -> bool:
    """Whether a module belongs to the script that runs, not to Python or an installed package."""
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    outermost = module.partition(".")[0]
    if not isinstance(file, str) or outermost in ("holdfast", *sys.stdlib_module_names):
        return False
    folder = os.path.dirname(os.path.realpath(file))
    if not _INSTALLED.isdisjoint(folder.split(os.sep)):
        return False
    return not any(folder == home or folder.startswith(home + os.sep) for home in _python())


@functools.cache
def _python() -> tuple[str, ...]:
    """Return the folders of Python itself and of what is installed for it."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.realpath(folder) for folder in folders})


def _frozen_setattr(kind: type[Any]) -> Any:
    """Return what a frozen dataclass is given to refuse changes, None if it has its own."""
    found = kind.__setattr__
    code = getattr(inspect.unwrap(found), "__code__", None)
    return found if code is not None and code.co_filename == "<string>" else None


def _shown(path: object) -> str:
    text = path if isinstance(path, str) else repr(path)
    return text if len(text) <= 200 else f"{text[:200]}…"
