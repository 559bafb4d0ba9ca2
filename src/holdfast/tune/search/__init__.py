"""Searchers and search spaces; each name is loaded when it is first used."""

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
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.tune.search.basic_variant": "BasicVariantGenerator",
        "holdfast.tune.search.concurrency_limiter": "ConcurrencyLimiter",
        "holdfast.tune.search.create": "create_searcher",
        "holdfast.tune.search.generator": "Proposal SearchPlan",
        "holdfast.tune.search.objects": "Objects",
        "holdfast.tune.search.repeater": "Repeater",
        "holdfast.tune.search.searcher": "Searcher UNDEFINED_METRIC_MODE UNRESOLVED_SEARCH_SPACE",
        "holdfast.tune.search.variant_generator": "RecursiveDependencyError",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
