"""Training runs and hyperparameter searches that survive anything that dies.

Importing this loads nothing else: a public submodule, or a name below, is loaded when it is first
used. So `import holdfast` stays quick, and brings in no framework you did not ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast import checkpoint as checkpoint
    from holdfast import errors as errors
    from holdfast.checkpoint import Checkpoint as Checkpoint
    from holdfast.engine.selection import init as init
    from holdfast.engine.selection import is_initialized as is_initialized
    from holdfast.engine.selection import shutdown as shutdown
    from holdfast.objects import ObjectRef as ObjectRef
    from holdfast.objects import get as get
    from holdfast.objects import put as put

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "ObjectRef",
    "__version__",
    "get",
    "init",
    "is_initialized",
    "put",
    "shutdown",
]

_HOMES = {
    "Checkpoint": "holdfast.checkpoint",
    "ObjectRef": "holdfast.objects",
    "get": "holdfast.objects",
    "init": "holdfast.engine.selection",
    "is_initialized": "holdfast.engine.selection",
    "put": "holdfast.objects",
    "shutdown": "holdfast.engine.selection",
}

if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for a good one

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        else:
            module = f"{__name__}.{name}"
            try:
                found = import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise  # the submodule is there; something it needs is not
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
