"""References to training functions in a trainer's record, and how they are found again.

There are three kinds. `import`: a function of a module. `main`: a function of the script that was
run, found in the script that runs now, if it has one of that name, or else in the file. `pickled`:
anything else. A `root` is the folder that a module was imported from, searched as a last resort.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import os
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from holdfast.api.bindings import defines
from holdfast.api.deprecated import warn_user
from holdfast.api.imports import find_module, import_path
from holdfast.api.recorded_names import Trust, recorded_thing
from holdfast.errors import CannotResume
from holdfast.storage.base import Store
from holdfast.storage.digest import digest_bytes
from holdfast.train.restore.pickled import pickle_by_value, problem_with, unpickled

_loading: ContextVar[bool] = ContextVar("a script is being loaded for its function", default=False)

_LOADED = "holdfast_script_"  # prefix of the names of modules that scripts are loaded as


class CannotRestore(CannotResume, ValueError):
    """A run cannot be restored from its folder alone; a `ValueError`, as in Ray."""

    code = "HF307"


class ScriptStartedTraining(BaseException):
    """Raised by `fit` to end a script that is being loaded only for its training function."""


def reference_to_function(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Return a reference to a function by its location, None if it must be pickled."""
    path = import_path(function)
    if path is not None:
        module, _, name = path.partition(":")
        return {"kind": "import", "module": module, "name": name, "root": _root(module)}
    name = str(getattr(function, "__qualname__", "<>"))
    home = sys.modules.get(getattr(function, "__module__", None) or "")
    if home is None or "<" in name or _attribute(home, name) is not function:
        return None
    is_script = home is sys.modules["__main__"] or home.__name__.startswith(_LOADED)
    script, spec = getattr(home, "__file__", None), getattr(home, "__spec__", None)
    code = getattr(inspect.unwrap(function), "__code__", None)
    is_in_file = code is None or not code.co_filename.startswith("<")  # not in a notebook cell
    if not is_script or not script or not os.path.isfile(script) or not is_in_file:
        return None
    run_as = None if spec is None or home.__name__ != "__main__" else spec.name
    return {
        "kind": "main",
        "name": name,
        "script": os.path.abspath(script),
        "module": None if run_as == "__main__" else run_as,
    }


def find_function(store: Store, reference: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that a record refers to; raise `CannotRestore` if it is not there."""
    try:
        function: Callable[..., Any] = _find(store, reference)
    except CannotRestore:
        raise
    except ScriptStartedTraining:
        problem = "its script trains before it defines the function, or as soon as it is imported"
        raise _not_found(reference, problem) from None
    except (Exception, SystemExit) as error:  # whatever loading or unpickling a user's code raises
        problem = f"loading it raised {type(error).__name__}: {error}"
        raise _not_found(reference, problem) from error
    if not callable(function):
        raise _not_found(reference, "it no longer exists")
    return function


def problem_with_function(store: Store, reference: Mapping[str, Any]) -> str | None:
    """Return why a function would not be found, None if it would; runs none of the user's code."""
    match reference["kind"]:
        case "pickled":
            return problem_with(store, reference)
        case "main" if _in_main(reference["name"]) is not None:
            return None
        case "main" if reference["module"] is not None and find_module(reference["module"]):
            return _problem_with_module(reference)
        case "main":
            return _problem_with_source(reference["script"], reference["name"])
        case "import":
            return _problem_with_module(reference)
        case "none":
            return None
        case _:
            return str(reference.get("why", "it was not stored"))


def is_loading_script() -> bool:
    """Whether this is called by a script that is being loaded only for its training function."""
    return _loading.get()


# ---------------------------------------------------------------------- finding


def _find(store: Store, reference: Mapping[str, Any]) -> Any:
    problem = problem_with_function(store, reference)
    if problem is not None:
        raise _not_found(reference, problem)
    name = reference.get("name", "")
    match reference["kind"]:
        case "pickled":
            return unpickled(store, reference)
        case "import":
            return _imported(reference)
        case _:
            here = _in_main(name)
            if here is not None:
                return here
            if reference["module"] is not None and find_module(reference["module"]):
                with _while_loading():
                    return recorded_thing(f"{reference['module']}:{name}", Trust.RUNNING)
            return _attribute(_loaded(reference["script"], name), name)


def _imported(reference: Mapping[str, Any]) -> Any:
    module, root = reference["module"], reference["root"]
    if find_module(module) is None and root is not None:
        sys.path.append(root)  # for good: workers have the search path of this process
        importlib.invalidate_caches()
    return recorded_thing(f"{module}:{reference['name']}", Trust.RUNNING)


def _in_main(name: str) -> Any:
    """Return the function of that name in the running script, even if its code has changed."""
    value = _attribute(sys.modules["__main__"], name)
    return value if callable(value) and getattr(value, "__module__", "") == "__main__" else None


def _loaded(script: str, name: str) -> ModuleType:
    """Return a script loaded as a module, without training.

    A script without `if __name__ == "__main__":` trains when it is loaded, or fails on a command
    line that is not its own. Loading ends there; what it has defined by then must suffice.
    """
    module_name = f"{_LOADED}{digest_bytes(script.encode())[:12]}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, script)
    assert spec is not None and spec.loader is not None, "its source was read before"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    folder = os.path.dirname(script)
    if folder not in sys.path:
        sys.path.append(folder)  # for modules beside the script; workers need it too
    try:
        with _while_loading():
            spec.loader.exec_module(module)
    except (Exception, SystemExit, ScriptStartedTraining) as error:
        if _attribute(module, name) is None:
            del sys.modules[module_name]
            raise
        if not isinstance(error, ScriptStartedTraining):
            warn_user(
                f"{script} was loaded for its function `{name}` only up to an error:"
                f" {type(error).__name__}: {error}"
            )
    except BaseException:
        del sys.modules[module_name]
        raise
    pickle_by_value(module)
    return module


@contextlib.contextmanager
def _while_loading() -> Iterator[None]:
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


def _attribute(thing: Any, path: str) -> Any:
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


def _root(module: str) -> str | None:
    """Return the folder of a module's outermost package, None if it has none."""
    spec = find_module(module.partition(".")[0])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return os.path.dirname(os.path.abspath(next(iter(spec.submodule_search_locations))))
    return os.path.dirname(os.path.abspath(spec.origin)) if spec.origin else None


# ---------------------------------------------------------------------- problems


def _problem_with_module(reference: Mapping[str, Any]) -> str | None:
    module, name = reference["module"], reference["name"]
    loaded = sys.modules.get(module)
    if loaded is not None and module != "__main__":
        return None if _attribute(loaded, name) is not None else f"{module} no longer has {name}"
    root = reference.get("root")
    spec = find_module(module) or (find_module(module, [root]) if root else None)
    if spec is None:
        return f"there is no module {module} here"
    if not spec.origin or not spec.origin.endswith(".py"):
        return None  # only loading it could tell
    return _problem_with_source(spec.origin, name)


def _problem_with_source(path: str, name: str) -> str | None:
    try:
        with tokenize.open(path) as file:
            source = file.read()
    except (OSError, ValueError, SyntaxError) as error:
        return f"{path} cannot be read: {error}"
    if not defines(source, name.partition(".")[0]):
        return f"{path} no longer has {name}"
    return None


def _not_found(reference: Mapping[str, Any], problem: str) -> CannotRestore:
    name = reference.get("name")
    named = f"`{name}` " if name else ""
    return CannotRestore(
        f"the training function {named}of the run cannot be found again: {problem}",
        hint="pass it: restore(path, train_loop_per_worker=…)",
    )
