"""A trial: its config, its results, its attempts and what the study wants of it.

Only the study changes it. Schedulers and callbacks read it, and ask the study for changes. Names
of Ray's for what can be derived from it are in `holdfast.tune.trial`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Self

from holdfast.core.checkpoint.record import RunRecord
from holdfast.core.config_data import as_kept, config_from_data, config_to_data
from holdfast.core.metric_history import flattened, is_number
from holdfast.core.run.budget import failures_in
from holdfast.core.run.history import run_of, run_to_data
from holdfast.core.run.machine import Run
from holdfast.core.study.events import TrialAdded
from holdfast.core.study.reservations import Rooms, reserve
from holdfast.core.study.statistics import Statistics


class Status(enum.StrEnum):
    """Where a trial stands."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"


OVER = (Status.TERMINATED, Status.ERROR)


class Verdict(enum.StrEnum):
    """What a trial does after a result; members are the words that schedulers return."""

    CONTINUE = "CONTINUE"
    PAUSE = "PAUSE"  # save, then wait without a process
    STOP = "STOP"  # end as finished


class Intent(enum.Enum):
    """What the study wants of a trial, whatever was decided about its last step."""

    GO_ON = enum.auto()
    SAVE = enum.auto()  # then go on
    PAUSE = enum.auto()  # save, then wait without a process
    HALT = enum.auto()  # wait without a process, at once
    END = enum.auto()  # as finished, at once


class Decision(NamedTuple):
    """What was decided about a step, which is judged once: it holds when the step is done again."""

    step: int = 0
    verdict: Verdict = Verdict.CONTINUE


@dataclass(frozen=True, slots=True)
class Reply:
    """What a trial is told after a result: the verdict, and whether to save first."""

    verdict: Verdict
    save: bool = False


class Donor(NamedTuple):
    """The checkpoint of another trial that a trial goes on from.

    Attributes:
        folder: The folder of the other trial.
        directory: The folder of its checkpoint therein.
        attempt: The last attempt of the trial that has not begun with it, 0 for any.
        step: The step that the trial had reached by then; its own steps are counted on from there,
            because they tell its results apart.
        result: What the other had reported with that checkpoint; iterations and times are counted
            on from there, because they are those of the weights.
    """

    folder: str
    directory: str
    attempt: int = 0
    step: int = 0
    result: Mapping[str, Any] = {}


class Variant(NamedTuple):
    """A config, with the tag and the searched values that go with it."""

    config: dict[str, Any]
    tag: str
    params: dict[str, Any]


@dataclass(eq=False)
class Trial:
    """One configuration in a study.

    Attributes:
        number: Its place in the order in which trials were made, from 0.
        config: The config of its trainable; a `Mark` stands for what only its process has.
        evaluated_params: Those values of `config` that were searched for, by path, `a/b` if nested.
        experiment_tag: The number and those values, as a short text.
        folder: Where its files are, below the study's folder.
        resources: What it reserves: one mapping per process, the trainable's own first.
        is_resized: Whether the scheduler has set `resources`.
        resize_to: What it will reserve once its process has gone, None if that stays the same.
        last_result: The newest result, {} before the first.
        step: How many results it has reported, counted on from the checkpoint it started from.
        decision: The highest step that was judged, and what was decided about it.
        intent: What the study wants of it besides.
        cut_off: Whether it ran when a driver died, or was ended because another trial failed; such
            trials go first under the next driver.
        concluded: Whether scheduler and searcher know that no more results come.
        places: The nodes of what it has reserved while it runs.
        statistics: The statistics of every metric, by its path.
        run: Its attempts and losses; a trial is a run of one worker.
        checkpoints: The record of its checkpoints.
        donor: What it starts from until it has saved itself, None for its own newest checkpoint.
        former: The config of its newest result, if it goes on with another one since, else None.
        started_at: When it first ran, seconds since 1970, None before.
    """

    trial_id: str
    number: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    trainable_name: str = "trainable"
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""
    folder: str = ""
    resources: tuple[Mapping[str, float], ...] = ({"CPU": 1.0},)
    is_resized: bool = False
    resize_to: tuple[Mapping[str, float], ...] | None = None
    status: Status = Status.PENDING
    last_result: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    decision: Decision = field(default_factory=Decision)
    intent: Intent = Intent.GO_ON
    cut_off: bool = False
    concluded: bool = False
    places: tuple[str, ...] = ()
    statistics: dict[str, Statistics] = field(default_factory=dict)
    run: Run = field(default_factory=Run)
    checkpoints: RunRecord = field(default_factory=RunRecord)
    donor: Donor | None = None
    former: Variant | None = None
    error: str | None = None
    started_at: float | None = None
    custom_name: str | None = None

    @classmethod
    def added(cls, event: TrialAdded) -> Self:
        """Return a new trial."""
        return cls(
            event.trial_id,
            number=event.number,
            config=config_from_data(event.config),
            trainable_name=event.trainable,
            evaluated_params=config_from_data(event.params),
            experiment_tag=event.tag,
            folder=event.folder,
            resources=tuple(event.resources),
            custom_name=event.name,
        )

    @property
    def reported_as(self) -> Variant:
        """The config of its newest result; before the first, that of the one to come."""
        return self.former or Variant(self.config, self.experiment_tag, self.evaluated_params)

    def failures(self) -> int:
        """Return how often it has failed, under all drivers; pauses and preemptions aside."""
        return failures_in(self.run.losses) + failures_in(self.run.lost_before)

    def is_finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in OVER

    # ------------------------------------------------------------------ for the study

    def observe(self, step: int, result: dict[str, Any]) -> None:
        """Take in a new result; a step done again after a loss counts in no average twice."""
        self.last_result, self.step = result, step
        statistics, is_new = self.statistics, step > self.decision.step
        for name, value in flattened({k: v for k, v in result.items() if k != "config"}).items():
            if not is_number(value):
                continue
            if name not in statistics:
                statistics[name] = Statistics.of(float(value))
            elif is_new:
                statistics[name].add(float(value))
            else:
                statistics[name].last = float(value)

    def reply(self) -> Reply:
        """Return what it is to do after the step it has reached."""
        verdict = self.decision.verdict if self.step >= self.decision.step else None
        if self.intent is Intent.END or verdict is Verdict.STOP:
            return Reply(Verdict.STOP)
        if self.intent in _WITHOUT_PROCESS:
            return Reply(Verdict.PAUSE, save=self.intent is Intent.PAUSE)
        if verdict is Verdict.PAUSE:
            return Reply(Verdict.PAUSE, save=True)
        return Reply(Verdict.CONTINUE, save=verdict is not None and self.intent is Intent.SAVE)

    @property
    def needs_process(self) -> bool:
        """Whether it runs, and is to be asked before its process is taken away."""
        return self.status is Status.RUNNING and self.intent not in (Intent.HALT, Intent.END)

    def want(self, intent: Intent) -> None:
        """Change what is wanted of it; one that is to end ends, whatever is wanted later."""
        if self.intent is not Intent.END:
            self.intent = intent

    def want_save(self) -> None:
        """Have it save itself before whatever else is wanted of it."""
        self.want(Intent.PAUSE if self.intent in _WITHOUT_PROCESS else Intent.SAVE)

    def has_saved(self) -> None:
        """Take back that it is to save itself."""
        if self.intent is Intent.SAVE:
            self.intent = Intent.GO_ON
        elif self.intent is Intent.PAUSE:
            self.intent = Intent.HALT

    def has_no_process(self) -> None:
        """Take back that its process is to be taken away."""
        if self.intent in _WITHOUT_PROCESS:
            self.intent = Intent.GO_ON

    def donation(self) -> Donor | None:
        """Return what another trial would take over from this one now, None if nothing."""
        newest = self.checkpoints.newest()
        if self.donor is not None or newest is None:
            return self.donor
        return Donor(self.folder, newest.directory, result=dict(newest.metrics))

    def become(self, other: Trial, config: dict[str, Any], tag: str) -> bool:
        """Take over the weights of another trial; False, and no change, if it has saved none."""
        donation = other.donation()
        if donation is None:
            return False
        is_running = self.status is Status.RUNNING
        config = as_kept(config)
        self.former = self.reported_as if self.last_result else None
        self.evaluated_params = values_now(self.evaluated_params, self.config, config)
        self.config, self.experiment_tag = config, tag
        attempt = self.run.attempts if is_running else 0
        self.donor = donation._replace(attempt=attempt, step=max(self.step, self.decision.step))
        if is_running:
            self.want(Intent.HALT)
        return True

    def stay(self) -> None:
        """Keep its own weights after all, and the config that they were trained with.

        If it has reported with the new config since, it keeps that: the old one is not known.
        """
        if self.former is not None:
            self.config, self.experiment_tag, self.evaluated_params = self.former
            self.former = None

    def has_given_up(self, attempt: int) -> bool:
        """Whether an attempt is of no use any more, because the trial goes on from another one."""
        return self.donor is not None and attempt <= self.donor.attempt

    def resize(self, wanted: Sequence[Mapping[str, float]], rooms: Rooms) -> None:
        """Change what it reserves, now or once its process is gone."""
        self.resize_to = tuple(dict(bundle) for bundle in wanted)
        if self.status is Status.RUNNING:
            self.want(Intent.PAUSE)
        else:
            self.take_size(rooms)

    def take_size(self, rooms: Rooms) -> None:
        """Carry out a change of what it reserves, unless there is too little by now."""
        wanted, self.resize_to = self.resize_to, None
        if wanted is not None and reserve(rooms, wanted) is not None:
            self.resources, self.is_resized = wanted, True

    def revive(self, *, from_scratch: bool) -> None:
        """Make a trial that is over wait to run again; from scratch, as if it had never run."""
        self.status, self.error, self.concluded = Status.PENDING, None, False
        self.intent, self.resize_to = Intent.GO_ON, None
        self.decision = Decision(0 if from_scratch else self.decision.step)
        if from_scratch:
            self.step = 0
            self.donor, self.former, self.last_result = None, None, {}
            for checkpoint in self.checkpoints.usable():
                self.checkpoints.apply("checkpoint_retired", {"number": checkpoint.number})

    def can_wait(self) -> bool:
        """Whether nothing is lost if it pauses now without its process."""
        begins_at = self.saved_step() if self.donor is None else self.donor.step
        return not self.reply().save or begins_at >= self.decision.step

    def saved_step(self) -> int:
        """Return the step of the newest checkpoint that can be used, 0 if there is none."""
        return next((checkpoint.step or 0 for checkpoint in self.checkpoints.usable()), 0)

    def to_data(self) -> dict[str, Any]:
        """Return it as plain data."""
        [(_, record)] = self.checkpoints.to_events()
        data: dict[str, Any] = dict(zip(_PLAIN, _plain_of(self), strict=True))
        return data | {
            "config": config_to_data(self.config),
            "evaluated_params": config_to_data(self.evaluated_params),
            "judged": self.decision.step,
            "verdict": str(self.decision.verdict),
            **_INTENT_DATA[self.intent],
            "resources": [dict(bundle) for bundle in self.resources],
            "resize_to": self.resize_to and [dict(bundle) for bundle in self.resize_to],
            "status": str(self.status),
            "statistics": {name: values.to_data() for name, values in self.statistics.items()},
            "run": run_to_data(self.run),
            "checkpoints": record,
            "donor": None if self.donor is None else list(self.donor),
            "former": self.former and _variant_to_data(self.former),
            "places": list(self.places),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the trial that `to_data` was called on."""
        trial = cls(**{name: data[name] for name in _PLAIN})
        trial.decision = Decision(data["judged"], Verdict(data["verdict"]))
        trial.intent = _intent_from_data(data)
        trial.config = config_from_data(data["config"])
        trial.evaluated_params = config_from_data(data["evaluated_params"])
        trial.resources = tuple(data["resources"])
        trial.resize_to = tuple(data["resize_to"]) if data.get("resize_to") else None
        trial.status = Status(data["status"])
        trial.statistics = {
            name: Statistics.from_data(values) for name, values in data["statistics"].items()
        }
        trial.run = run_of(data["run"])
        trial.checkpoints.apply("record_snapshot", data["checkpoints"])
        if data["donor"] is not None:
            trial.donor = Donor(*data["donor"])
        if data.get("former") is not None:
            config, tag, params = data["former"]
            trial.former = Variant(config_from_data(config), tag, config_from_data(params))
        trial.places = tuple(data["places"])
        return trial

    def __str__(self) -> str:
        return self.custom_name or f"{self.trainable_name}_{self.trial_id}"

    def __repr__(self) -> str:
        return f"Trial({self}, {self.status})"


def _variant_to_data(variant: Variant) -> list[Any]:
    return [config_to_data(variant.config), variant.tag, config_to_data(variant.params)]


def values_now(
    params: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values that were searched for as a new config has them, by path.

    Those of the paths in `params`, and of others that have changed.
    """
    changed = {
        path: value
        for path, value in _changes(before, after)
        if not any(
            f"{path}/".startswith(f"{name}/") or name.startswith(f"{path}/") for name in params
        )
    }
    return {path: _value_at(after, path, value) for path, value in params.items()} | changed


def _value_at(config: Any, path: str, otherwise: Any) -> Any:
    if isinstance(config, Mapping) and path in config:
        return config[path]
    first, _, rest = path.partition("/")
    inner: Any = None
    if isinstance(config, Mapping):
        inner = next((value for key, value in config.items() if str(key) == first), None)
    elif isinstance(config, list | tuple) and first.isdigit() and int(first) < len(config):
        inner = config[int(first)]
    if inner is None:
        return otherwise
    return _value_at(inner, rest, otherwise) if rest else inner


def _changes(before: Any, after: Mapping[Any, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in after.items():
        old = before.get(name) if isinstance(before, Mapping) else None
        if isinstance(value, Mapping):
            yield from _changes(old, value, f"{above}{name}/")
        elif value != old:
            yield f"{above}{name}", value


_PLAIN = (
    "trial_id",
    "number",
    "config",
    "trainable_name",
    "evaluated_params",
    "experiment_tag",
    "folder",
    "is_resized",
    "last_result",
    "step",
    "cut_off",
    "concluded",
    "error",
    "started_at",
    "custom_name",
)
_plain_of = attrgetter(*_PLAIN)

_WITHOUT_PROCESS = (Intent.PAUSE, Intent.HALT)
# Records keep an intent as three flags, of which `doomed` outweighs the others.
_INTENT_DATA = {
    intent: {
        "doomed": intent is Intent.END,
        "halted": intent in _WITHOUT_PROCESS,
        "save_wanted": intent in (Intent.SAVE, Intent.PAUSE),
    }
    for intent in Intent
}


def _intent_from_data(data: Mapping[str, Any]) -> Intent:
    if data["doomed"]:
        return Intent.END
    if data["halted"]:
        return Intent.PAUSE if data["save_wanted"] else Intent.HALT
    return Intent.SAVE if data["save_wanted"] else Intent.GO_ON
