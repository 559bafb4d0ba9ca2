"""Hyperparameter search: studies that survive crashes, with the API of Ray Tune.

Names load on first use, so that the process of a trial imports only what it calls.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.api.config import CheckpointConfig as CheckpointConfig
    from holdfast.api.config import FailureConfig as FailureConfig
    from holdfast.api.config import RunConfig as RunConfig
    from holdfast.api.config import SyncConfig as SyncConfig
    from holdfast.checkpoint import Checkpoint as Checkpoint
    from holdfast.tune.analysis import Analysis as Analysis
    from holdfast.tune.analysis import ExperimentAnalysis as ExperimentAnalysis
    from holdfast.tune.callback import Callback as Callback
    from holdfast.tune.errors import TuneError as TuneError
    from holdfast.tune.experiment import Experiment as Experiment
    from holdfast.tune.functions import TuneContext as TuneContext
    from holdfast.tune.functions import checkpoint_dir as checkpoint_dir
    from holdfast.tune.functions import get_checkpoint as get_checkpoint
    from holdfast.tune.functions import get_context as get_context
    from holdfast.tune.functions import report as report
    from holdfast.tune.progress_reporter import CLIReporter as CLIReporter
    from holdfast.tune.progress_reporter import JupyterNotebookReporter as JupyterNotebookReporter
    from holdfast.tune.progress_reporter import ProgressReporter as ProgressReporter
    from holdfast.tune.registry import register_env as register_env
    from holdfast.tune.registry import register_trainable as register_trainable
    from holdfast.tune.resources import PlacementGroupFactory as PlacementGroupFactory
    from holdfast.tune.resources import with_resources as with_resources
    from holdfast.tune.result import Result as Result
    from holdfast.tune.result_grid import ResultGrid as ResultGrid
    from holdfast.tune.schedulers import create_scheduler as create_scheduler
    from holdfast.tune.search import create_searcher as create_searcher
    from holdfast.tune.search.sample import choice as choice
    from holdfast.tune.search.sample import grid_search as grid_search
    from holdfast.tune.search.sample import lograndint as lograndint
    from holdfast.tune.search.sample import loguniform as loguniform
    from holdfast.tune.search.sample import qlograndint as qlograndint
    from holdfast.tune.search.sample import qloguniform as qloguniform
    from holdfast.tune.search.sample import qrandint as qrandint
    from holdfast.tune.search.sample import qrandn as qrandn
    from holdfast.tune.search.sample import quniform as quniform
    from holdfast.tune.search.sample import randint as randint
    from holdfast.tune.search.sample import randn as randn
    from holdfast.tune.search.sample import sample_from as sample_from
    from holdfast.tune.search.sample import uniform as uniform
    from holdfast.tune.stopper import Stopper as Stopper
    from holdfast.tune.study.older_arguments import function as function
    from holdfast.tune.trainable import Trainable as Trainable
    from holdfast.tune.trainables.kinds import with_parameters as with_parameters
    from holdfast.tune.tune import run as run
    from holdfast.tune.tune import run_experiments as run_experiments
    from holdfast.tune.tune_config import ResumeConfig as ResumeConfig
    from holdfast.tune.tune_config import TuneConfig as TuneConfig
    from holdfast.tune.tuner import Tuner as Tuner
else:
    from holdfast.lazy_exports import lazy_exports

    _NAMES = {
        "holdfast.api.config": "CheckpointConfig FailureConfig RunConfig SyncConfig",
        "holdfast.checkpoint": "Checkpoint",
        "holdfast.tune.analysis": "Analysis ExperimentAnalysis",
        "holdfast.tune.callback": "Callback",
        "holdfast.tune.errors": "TuneError",
        "holdfast.tune.experiment": "Experiment",
        "holdfast.tune.functions": "TuneContext checkpoint_dir get_checkpoint get_context report",
        "holdfast.tune.progress_reporter": "CLIReporter JupyterNotebookReporter ProgressReporter",
        "holdfast.tune.registry": "register_env register_trainable",
        "holdfast.tune.resources": "PlacementGroupFactory with_resources",
        "holdfast.tune.result": "Result",
        "holdfast.tune.result_grid": "ResultGrid",
        "holdfast.tune.schedulers": "create_scheduler",
        "holdfast.tune.search": "create_searcher",
        "holdfast.tune.search.sample": (
            "choice grid_search lograndint loguniform qlograndint qloguniform qrandint qrandn "
            "quniform randint randn sample_from uniform"
        ),
        "holdfast.tune.stopper": "Stopper",
        "holdfast.tune.study.older_arguments": "function",
        "holdfast.tune.trainable": "Trainable",
        "holdfast.tune.trainables.kinds": "with_parameters",
        "holdfast.tune.tune": "run run_experiments",
        "holdfast.tune.tune_config": "ResumeConfig TuneConfig",
        "holdfast.tune.tuner": "Tuner",
    }
    __all__, __getattr__, __dir__ = lazy_exports(__name__, _NAMES)
