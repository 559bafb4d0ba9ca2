"""How many workers a run has, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.api.assignment import assignable, config_repr
from holdfast.api.checks import Problems, checking, is_number, is_whole, this_is
from holdfast.api.did_you_mean import rejects_unknown_arguments
from holdfast.core.names import shown
from holdfast.errors import ConfigError

_ACCELERATORS = {"GPU": "use_gpu", "TPU": "use_tpu"}
_STANDARD_RESOURCES = ("CPU", *_ACCELERATORS)
_PLACEMENTS = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")


@assignable
@rejects_unknown_arguments
@dataclass(unsafe_hash=True, repr=False)
class ScalingConfig:
    """How many workers a run has, and what each of them needs.

    Attributes:
        trainer_resources: From Ray AIR; the controller reserves nothing.
        num_workers: A fixed number, or `(min, max)` for a group that grows and shrinks with the
            resources available; 0 runs the training function in this process.
        use_gpu: Whether each worker gets a GPU, or as many as `resources_per_worker` says.
        resources_per_worker: Such as `{"CPU": 4, "GPU": 0.5}`; by default one CPU, or one
            accelerator.
        placement_strategy: Whether workers share nodes; "PACK", "SPREAD", or "STRICT_" of either.
        accelerator_type: The kind of accelerator that the nodes must have.
        label_selector: Labels that the nodes must have: for all workers, or a list, one for each.
        use_tpu: As `use_gpu`; more than one worker needs `topology` and `accelerator_type`.
        topology: Of the TPU slice.
        elastic_resize_monitor_interval_s: How often an elastic group looks for a better size.
    """

    trainer_resources: Mapping[str, float] | None = None
    num_workers: int | tuple[int, int] = 1
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] | None = None
    placement_strategy: str = "PACK"
    accelerator_type: str | None = None
    label_selector: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None
    use_tpu: bool = False
    topology: str | None = None
    elastic_resize_monitor_interval_s: float = 60.0

    def __post_init__(self) -> None:
        if searched_fields(self):
            return  # a study draws values for them, and checks the result
        with checking(self) as problems:
            if not isinstance(self.trainer_resources, Mapping | None):
                rule = f'not a dictionary such as {{"CPU": 2}}, {this_is(self.trainer_resources)}'
                problems.add("trainer_resources", rule, hint="give workers by name: num_workers=…")
            workers_are_known = _check_workers(self, problems)
            flags_are_good = all([problems.flag("use_gpu"), problems.flag("use_tpu")])
            if _check_resources(self, problems) and flags_are_good:
                _check_accelerators(self, problems)
            problems.choice("placement_strategy", *_PLACEMENTS)
            problems.text("accelerator_type", "it names a kind of accelerator, None for any")
            problems.text("topology", "it names the shape of a TPU slice, None for any")
            if workers_are_known:
                _check_labels(self, problems)
                _check_slice(self, problems)
            meaning = "it is how long to wait between looks for a better size"
            problems.seconds("elastic_resize_monitor_interval_s", meaning)

    def __repr__(self) -> str:
        return config_repr(self, ScalingConfig())

    @property
    def elasticity_enabled(self) -> bool:
        """Whether the number of workers may change during the run."""
        return isinstance(self.num_workers, tuple)

    @property
    def min_workers(self) -> int:
        """The fewest workers to start with."""
        return int(self.num_workers[0] if isinstance(self.num_workers, tuple) else self.num_workers)

    @property
    def max_workers(self) -> int:
        """The largest number of workers."""
        return int(self.num_workers[1] if isinstance(self.num_workers, tuple) else self.num_workers)

    @property
    def total_resources(self) -> dict[str, float]:
        """What all workers need together, when there are `max_workers`."""
        return {name: each * self.max_workers for name, each in _resources_of(self).items()}

    @property
    def num_cpus_per_worker(self) -> float:
        """CPUs that each worker reserves."""
        return _resources_of(self).get("CPU", 0)

    @property
    def num_gpus_per_worker(self) -> float:
        """GPUs that each worker gets."""
        return _resources_of(self).get("GPU", 0)

    @property
    def num_tpus_per_worker(self) -> float:
        """TPUs that each worker gets."""
        return _resources_of(self).get("TPU", 0)

    @property
    def additional_resources_per_worker(self) -> dict[str, float]:
        """What each worker needs in addition to CPUs and GPUs."""
        needed = _resources_of(self)
        return {name: each for name, each in needed.items() if name not in ("CPU", "GPU")}


def _resources_of(config: ScalingConfig) -> dict[str, float]:
    """Return what each worker needs, without zeros."""
    wanted = [name for name, flag in _ACCELERATORS.items() if getattr(config, flag)]
    if config.resources_per_worker is not None:
        needed = {name: each for name, each in config.resources_per_worker.items() if each != 0}
    else:
        # A worker with an accelerator reserves no CPU: nodes have far more of those.
        needed = {} if wanted else {"CPU": 1.0}
    for name in wanted:
        needed.setdefault(name, 1.0)
    if config.accelerator_type:
        needed.setdefault(f"accelerator_type:{config.accelerator_type}", 0.001)
    return needed


# ---------------------------------------------------------------------- search spaces


def searched_fields(config: ScalingConfig) -> dict[str, object]:
    """Return the fields that hold a search space: a domain or a grid."""
    return {name: value for name, value in vars(config).items() if _is_searched(value)}


def must_be_settled(config: ScalingConfig) -> None:
    """Raise `ConfigError` if a field holds a search space."""
    if searched := searched_fields(config):
        listed = "".join(f"\n  - {name}={shown(value)}" for name, value in searched.items())
        raise ConfigError(
            f"ScalingConfig has search spaces, which only a study can draw from:{listed}",
            hint="Tuner(trainer, param_space={'scaling_config': ScalingConfig(…)})",
        )


def _is_searched(value: object) -> bool:
    if isinstance(value, Mapping):
        is_grid = value.keys() == {"grid_search"} and isinstance(value["grid_search"], list | tuple)
        return is_grid or any(map(_is_searched, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_searched, value))
    return hasattr(value, "domain_str")  # a tune.search.Domain, which this layer cannot import


# ---------------------------------------------------------------------- checks


def _check_workers(config: ScalingConfig, problems: Problems) -> bool:
    given: object = config.num_workers
    if not isinstance(given, tuple):
        meaning = "it is how many workers there are, or a tuple (min, max)"
        return problems.whole("num_workers", meaning, at_least=0)
    if len(given) != 2 or not all(map(is_whole, given)):
        problems.add("num_workers", "not (min, max), a pair of whole numbers")
    elif given[0] < 1:
        problems.add("num_workers", "an elastic group has at least one worker")
    elif given[0] > given[1]:
        problems.add("num_workers", "not (min, max): the first is larger than the second")
    else:
        return True
    return False


def _check_resources(config: ScalingConfig, problems: Problems) -> bool:
    given: object = config.resources_per_worker
    if given is None:
        return True
    field = "resources_per_worker"
    if not isinstance(given, Mapping):
        problems.add(field, 'not a dictionary such as {"CPU": 2, "GPU": 1}')
        return False
    before = len(problems.lines)
    for name, each in given.items():
        item = f"{field}[{shown(name)}]={shown(each)}"
        if not isinstance(name, str) or not name:
            problems.tell(f"{item}: the name of a resource is a string")
        elif name not in _STANDARD_RESOURCES and name.upper() in _STANDARD_RESOURCES:
            problems.tell(f"{item}: this resource is written {name.upper()!r}")
        elif not is_number(each) or not 0 <= each < float("inf"):
            problems.tell(f"{item}: a worker needs a number of it, 0 or more")
    return len(problems.lines) == before


def _check_accelerators(config: ScalingConfig, problems: Problems) -> None:
    if config.use_gpu and config.use_tpu:
        problems.add(
            "use_gpu", "not together with use_tpu=True; a worker has one kind of accelerator"
        )
    given = config.resources_per_worker or {}
    for name, flag in _ACCELERATORS.items():
        item = f"resources_per_worker[{name!r}]={given.get(name)}"
        if given.get(name) and not getattr(config, flag):
            problems.tell(f"{item}: needs {flag}=True")
        elif given.get(name) == 0 and getattr(config, flag):
            problems.tell(f"{item}: with {flag}=True a worker needs some of it")


def _check_labels(config: ScalingConfig, problems: Problems) -> None:
    given: object = config.label_selector
    if given is None:
        return
    selectors = given if isinstance(given, list | tuple) else [given]
    if not all(map(_is_selector, selectors)):
        problems.add("label_selector", "not a dictionary of strings, nor a list of such")
    elif selectors is given and len(selectors) != config.max_workers:
        problems.add(
            "label_selector",
            f"{len(selectors)} for {config.max_workers} workers; a list has one for each",
        )


def _is_selector(given: object) -> bool:
    return isinstance(given, Mapping) and all(
        isinstance(key, str) and isinstance(value, str) for key, value in given.items()
    )


def _check_slice(config: ScalingConfig, problems: Problems) -> None:
    if config.use_tpu and config.max_workers > 1:
        for name in ("topology", "accelerator_type"):
            if getattr(config, name) is None:
                problems.add(name, "must be given for more than one worker with use_tpu=True")
