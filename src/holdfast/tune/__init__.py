"""Hyperparameter studies that survive whatever dies, and decide as if nothing had.

A name is loaded when it is first used: the process of a trial needs only what it calls.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_NAMES = {
    "holdfast.api.config": ("CheckpointConfig", "FailureConfig", "RunConfig", "SyncConfig"),
    "holdfast.checkpoint": ("Checkpoint",),
    "holdfast.tune.analysis": ("ExperimentAnalysis",),
    "holdfast.tune.callback": ("Callback",),
    "holdfast.tune.errors": ("TuneError",),
    "holdfast.tune.functions": ("TuneContext", "get_checkpoint", "get_context", "report"),
    "holdfast.tune.registry": ("register_env", "register_trainable"),
    "holdfast.tune.resources": ("PlacementGroupFactory", "with_resources"),
    "holdfast.tune.result": ("Result",),
    "holdfast.tune.result_grid": ("ResultGrid",),
    "holdfast.tune.schedulers": ("create_scheduler",),
    "holdfast.tune.search": ("create_searcher",),
    "holdfast.tune.search.sample": (
        "choice",
        "grid_search",
        "lograndint",
        "loguniform",
        "qlograndint",
        "qloguniform",
        "qrandint",
        "qrandn",
        "quniform",
        "randint",
        "randn",
        "sample_from",
        "uniform",
    ),
    "holdfast.tune.stopper": ("Stopper",),
    "holdfast.tune.trainable": ("Trainable",),
    "holdfast.tune.trainables": ("with_parameters",),
    "holdfast.tune.tune_config": ("ResumeConfig", "TuneConfig"),
    "holdfast.tune.tuner": ("Tuner",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        else:
            module = f"{__name__}.{name}"
            try:
                found = import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
        globals()[name] = found
        return found
