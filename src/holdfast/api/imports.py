"""Import paths (`package.module:Name`) of objects, and where modules would be imported from."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import MethodType
from typing import Any


def import_path(thing: Any) -> str | None:
    """Return `package.module:Name` if importing that gives `thing`, else None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    if module == "__main__" or "<" in name or find_module(module) is None:
        return None
    try:
        target = operator.attrgetter(name)(importlib.import_module(module))
    except AttributeError:
        return None
    is_same = target is thing or (isinstance(target, MethodType) and target == thing)
    return f"{module}:{name}" if is_same else None


def find_module(module: str, folders: Sequence[str] | None = None) -> ModuleSpec | None:
    """Return the spec a new process would import a module by, None if it would find none.

    Neither the module nor the packages around it are loaded. `folders` replace Python's own search
    path.
    """
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(len(parts)):
        name = ".".join(parts[: depth + 1])
        try:
            spec = _spec(name, folders)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None:
            return None
        folders = spec.submodule_search_locations
        if folders is None and depth + 1 < len(parts):
            return None
    return spec


def _spec(name: str, folders: Sequence[str] | None) -> ModuleSpec | None:
    for finder in [PathFinder] if folders is not None else sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, folders)
        if spec is not None:
            return spec
    return None
