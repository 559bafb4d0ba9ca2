"""A training function as a record keeps it: by where it is found, not by what it is.

Three kinds. `import`: a function of a module. `main`: a function of the script that was run, found
in the script that runs now, if it has one of that name, or else in the file. `pickled`: anything
else. A `root` is the folder that a module was found below; it is looked at when nothing else helps.
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
from holdfast.train.restore.pickled import by_value, problem_with, unpickled

_loading: ContextVar[bool] = ContextVar("a script is being loaded for its function", default=False)

_LOADED = "holdfast_script_"  # how the modules are called that scripts are loaded as


class CannotRestore(CannotResume, ValueError):
    """A run cannot be restored from its folder alone; `ValueError` is what older code expects."""

    code = "HF307"


class ScriptTrains(BaseException):
    """A script that is loaded for its function has come to train; the rest of it is not wanted."""


def reference_to_function(function: Callable[..., Any]) -> dict[str, Any] | None:
    """Return where a function will be found again, None if it has no such place."""
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
    is_of_file = code is None or not code.co_filename.startswith("<")  # and not of a cell
    if not is_script or not script or not os.path.isfile(script) or not is_of_file:
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
        found = _find(store, reference)
    except CannotRestore:
        raise
    except ScriptTrains:
        problem = "its script trains before it comes to the function, or as soon as it is imported"
        raise _not_found(reference, problem) from None
    except (Exception, SystemExit) as error:  # whatever loading or unpickling a user's code raises
        said = f"{type(error).__name__}: {error}"
        raise _not_found(reference, f"loading it raised {said}") from error
    if not callable(found):
        raise _not_found(reference, "it is not there any more")
    function: Callable[..., Any] = found
    return function


def problem_with_function(store: Store, reference: Mapping[str, Any]) -> str | None:
    """Return why a function would not be found, None if it would; no code of the user's is run."""
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
            return str(reference.get("why", "it was not kept"))


def is_loading_script() -> bool:
    """Whether the code that calls this runs only because its script is loaded for a function."""
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
        sys.path.append(root)  # and there it stays: workers search where this process does
        importlib.invalidate_caches()
    return recorded_thing(f"{module}:{reference['name']}", Trust.RUNNING)


def _in_main(name: str) -> Any:
    """Return what the script that runs now has under a name, whatever its code is by now."""
    main = sys.modules["__main__"]
    found = _attribute(main, name)
    return found if callable(found) and getattr(found, "__module__", "") == "__main__" else None


def _loaded(script: str, name: str) -> ModuleType:
    """Return a script as a module, without what it does when it is run.

    A script without `if __name__ == "__main__":` trains as soon as it is loaded, or reads a command
    line that is not its own. It ends there; what it has defined by then is what its function had.
    """
    known = f"{_LOADED}{digest_bytes(script.encode())[:12]}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, script)
    assert spec is not None and spec.loader is not None, "it was looked at before"
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module
    folder = os.path.dirname(script)
    if folder not in sys.path:
        sys.path.append(folder)  # for what lies beside the script; workers need it too
    try:
        with _while_loading():
            spec.loader.exec_module(module)
    except (Exception, SystemExit, ScriptTrains) as error:
        if _attribute(module, name) is None:
            del sys.modules[known]
            raise
        if not isinstance(error, ScriptTrains):
            warn_user(
                f"{script} was loaded for its function `{name}` only as far as it goes:"
                f" {type(error).__name__}: {error}"
            )
    except BaseException:
        del sys.modules[known]
        raise
    by_value(module)
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
    """Return the folder that a module's outermost package lies in, if it lies in one."""
    spec = find_module(module.partition(".")[0])
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return os.path.dirname(os.path.abspath(next(iter(spec.submodule_search_locations))))
    return os.path.dirname(os.path.abspath(spec.origin)) if spec.origin else None


# ---------------------------------------------------------------------- what would not be found


def _problem_with_module(reference: Mapping[str, Any]) -> str | None:
    module, name = reference["module"], reference["name"]
    loaded = sys.modules.get(module)
    if loaded is not None and module != "__main__":
        return None if _attribute(loaded, name) is not None else f"{module} has no {name} any more"
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
        return f"{path} has no {name} any more"
    return None


def _not_found(reference: Mapping[str, Any], problem: str) -> CannotRestore:
    name = reference.get("name")
    named = f"`{name}` " if name else ""
    return CannotRestore(
        f"the training function {named}of the run cannot be found again: {problem}",
        hint="pass it: restore(path, train_loop_per_worker=…)",
    )
