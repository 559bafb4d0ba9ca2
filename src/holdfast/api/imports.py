"""Things by the path they are imported from, and whether they would be found there again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import MethodType
from typing import Any


def import_path(thing: Any) -> str | None:
    """Return `package.module:Name` if that is where `thing` is found, else None."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    if module == "__main__" or "<" in name or not is_findable(module):
        return None
    try:
        found = imported(f"{module}:{name}")
    except AttributeError:
        return None
    is_it = found is thing or (isinstance(found, MethodType) and found == thing)
    return f"{module}:{name}" if is_it else None


def imported(path: str) -> Any:
    """Return what an import path names."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_findable(module: str) -> bool:
    """Whether a new process, with the same search path, would find a module; none is loaded."""
    return find_module(module) is not None


def find_module(module: str, folders: Sequence[str] | None = None) -> ModuleSpec | None:
    """Return where a module would come from, without loading it or the packages around it.

    `folders` are looked through instead of the places where Python looks.
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
        if find is not None and (spec := find(name, folders)) is not None:
            found: ModuleSpec = spec
            return found
    return None
