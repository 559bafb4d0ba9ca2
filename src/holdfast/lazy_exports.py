"""Names of a package that are loaded when they are first used.

    if TYPE_CHECKING:
        from package.module import First as First
        from package.module import Second as Second
    else:
        __all__, __getattr__, __dir__ = lazy_exports(__name__, {"package.module": "First Second"})

Type checkers read the imports. The rest is hidden from them: a module with `__getattr__` has any
name, as far as they know.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

Exports = tuple[list[str], Callable[[str], object], Callable[[], list[str]]]


def lazy_exports(package: str, names: Mapping[str, str]) -> Exports:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    A submodule whose name has no underscore in front is loaded when it is first used, too.

    Args:
        package: The package's `__name__`.
        names: What it exports, separated by spaces, by the module that defines it.
    """
    homes = {name: home for home, listed in names.items() for name in listed.split()}
    exported = sorted(homes)

    def load(name: str) -> object:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        else:
            value = _submodule(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exported})

    return exported, load, listed


def exports_of(module: str, *, under: str) -> Exports:
    """Return `__all__`, `__getattr__` and `__dir__` of `under`, another path to a module.

    The module itself is loaded now, what it exports when it is first used.
    """
    return lazy_exports(under, {module: " ".join(import_module(module).__all__)})


def _submodule(package: str, name: str) -> object:
    module = f"{package}.{name}"
    if not name.startswith("_") and hasattr(sys.modules[package], "__path__"):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise  # the submodule is there; something it needs is not
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
