"""Searchers, and what they search; a name is loaded when it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.tune.search.basic_variant import BasicVariantGenerator as BasicVariantGenerator
    from holdfast.tune.search.concurrency_limiter import ConcurrencyLimiter as ConcurrencyLimiter
    from holdfast.tune.search.create import create_searcher as create_searcher
    from holdfast.tune.search.generator import Proposal as Proposal
    from holdfast.tune.search.generator import SearchPlan as SearchPlan
    from holdfast.tune.search.objects import Objects as Objects
    from holdfast.tune.search.repeater import Repeater as Repeater
    from holdfast.tune.search.searcher import UNDEFINED_METRIC_MODE as UNDEFINED_METRIC_MODE
    from holdfast.tune.search.searcher import UNRESOLVED_SEARCH_SPACE as UNRESOLVED_SEARCH_SPACE
    from holdfast.tune.search.searcher import Searcher as Searcher
    from holdfast.tune.search.variant_generator import (
        RecursiveDependencyError as RecursiveDependencyError,
    )

_HOMES = {
    "BasicVariantGenerator": "basic_variant",
    "ConcurrencyLimiter": "concurrency_limiter",
    "Objects": "objects",
    "Proposal": "generator",
    "RecursiveDependencyError": "variant_generator",
    "Repeater": "repeater",
    "SearchPlan": "generator",
    "Searcher": "searcher",
    "UNDEFINED_METRIC_MODE": "searcher",
    "UNRESOLVED_SEARCH_SPACE": "searcher",
    "create_searcher": "create",
}

__all__ = [  # noqa: RUF022  written out, so that type checkers can read it
    "BasicVariantGenerator",
    "ConcurrencyLimiter",
    "Objects",
    "Proposal",
    "RecursiveDependencyError",
    "Repeater",
    "SearchPlan",
    "Searcher",
    "UNDEFINED_METRIC_MODE",
    "UNRESOLVED_SEARCH_SPACE",
    "create_searcher",
]

if not TYPE_CHECKING:  # hidden from type checkers, which would take any name for a good one

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
