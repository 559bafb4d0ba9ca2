"""Import paths of every era of Ray lead to the same things."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

SEARCH = "holdfast.tune.search"
PATHS = {
    "holdfast.tune.suggest": (
        SEARCH,
        "BasicVariantGenerator ConcurrencyLimiter Repeater Searcher create_searcher",
    ),
    "holdfast.tune.suggest.suggestion": (SEARCH, "ConcurrencyLimiter Searcher"),
    "holdfast.tune.suggest.basic_variant": (SEARCH, "BasicVariantGenerator"),
    "holdfast.tune.suggest.repeater": (SEARCH, "Repeater"),
    "holdfast.tune.suggest.optuna": (f"{SEARCH}.optuna", "OptunaSearch"),
    "holdfast.tune.suggest.hyperopt": (f"{SEARCH}.hyperopt", "HyperOptSearch"),
    "holdfast.tune.suggest.bohb": (f"{SEARCH}.bohb", "TuneBOHB"),
    "holdfast.tune.suggest.ax": (f"{SEARCH}.ax", "AxSearch"),
    "holdfast.tune.sample": (f"{SEARCH}.sample", "Domain choice grid_search loguniform uniform"),
    "holdfast.tune.trial": ("holdfast.tune.experiment", "Trial"),
    "holdfast.tune.error": ("holdfast.tune", "TuneError"),
    "holdfast.tune.context": ("holdfast.tune", "TuneContext get_context"),
}


@pytest.mark.parametrize("path", PATHS)
def test_an_older_path_leads_to_what_there_is_today(path: str) -> None:
    home, names = PATHS[path]

    for name in names.split():
        assert getattr(import_module(path), name) is getattr(import_module(home), name)


def test_a_searcher_is_there_without_its_library_being_loaded() -> None:
    code = (
        "import sys, holdfast.tune.search.ax, holdfast.tune.suggest.hyperopt, holdfast.tune.suggest"
        "; print([name for name in ('ax', 'torch', 'hyperopt', 'optuna') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
