"""Stoppers: rules that end a trial, or the whole study."""

from __future__ import annotations

from holdfast.tune.stopper.dictionary import DictStopper
from holdfast.tune.stopper.experiment_plateau import ExperimentPlateauStopper
from holdfast.tune.stopper.forms import stopper_of
from holdfast.tune.stopper.function_stopper import FunctionStopper
from holdfast.tune.stopper.maximum_iteration import MaximumIterationStopper
from holdfast.tune.stopper.noop import NoopStopper
from holdfast.tune.stopper.stopper import CombinedStopper, Stopper
from holdfast.tune.stopper.timeout import TimeoutStopper
from holdfast.tune.stopper.trial_plateau import TrialPlateauStopper

__all__ = [
    "CombinedStopper",
    "DictStopper",
    "ExperimentPlateauStopper",
    "FunctionStopper",
    "MaximumIterationStopper",
    "NoopStopper",
    "Stopper",
    "TimeoutStopper",
    "TrialPlateauStopper",
    "stopper_of",
]
