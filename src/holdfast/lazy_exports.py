"""Lazy exports: names of a package that are loaded when first used.

    if TYPE_CHECKING:
        from package.module import First as First
        from package.module import Second as Second
    else:
        __all__, __getattr__, __dir__ = lazy_exports(__name__, {"package.module": "First Second"})

Type checkers read the imports. `__getattr__` is hidden from them, because for them a module that
has it has every name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

Exports = tuple[list[str], Callable[[str], object], Callable[[], list[str]]]


def lazy_exports(package: str, names: Mapping[str, str]) -> Exports:
    """Return `__all__`, `__getattr__` and `__dir__` of a package.

    Submodules without a leading underscore are also loaded when first used.

    Args:
        package: The package's `__name__`.
        names: For each module, the names to export from it, separated by spaces.
    """
    homes = {name: module for module, exports in names.items() for name in exports.split()}
    exported = sorted(homes)

    def load(name: str) -> object:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        else:
            value = _submodule(package, name)
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *exported})

    return exported, load, list_names


def exports_of(module: str, *, under: str) -> Exports:
    """Return `__all__`, `__getattr__` and `__dir__` of `under`, another path to a module.

    The module itself is loaded now, its exports when first used.
    """
    return lazy_exports(under, {module: " ".join(import_module(module).__all__)})


def _submodule(package: str, name: str) -> object:
    module = f"{package}.{name}"
    if not name.startswith("_") and hasattr(sys.modules[package], "__path__"):
        try:
            return import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise  # the submodule exists, but not a module it imports
    raise AttributeError(f"module {package!r} has no attribute {name!r}")
