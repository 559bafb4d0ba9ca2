"""What really happened in a simulated run, as nobody inside it can know; and when it is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.checkpoint.manifests import get_manifest
from holdfast.control.run.controller import RunController
from holdfast.control.run.plan import Outcome
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.run.outcomes import Finished, WorkerExit
from holdfast.errors import ObjectMissing, RanksDisagree
from holdfast.journal.lease import lease_key
from holdfast.storage.base import Store
from tests.simulation import invariants
from tests.simulation.stage import Process, Stage
from tests.simulation.story import Story

if TYPE_CHECKING:
    from tests.simulation.workers import SimWorker


@dataclass(eq=False)
class Group:
    """One group of workers.

    Attributes:
        exits: How its workers ended, as the engine says it.
        hanging: Ranks that will never go on.
        may_move: Whether machines of its leave, or there may be room for more workers.
        may_not_save: Whether the story keeps a checkpoint of its from being saved.
        may_be_out_of_step: Whether a rank of its has made a report too many, or left early.
        was_out_of_step: Whether a worker was told that its ranks are not in step.
        stopped: When it was stopped by the controller, None if it was not.
        gone: When the last of its workers had ended, None if some run.
    """

    launch: Launch
    attempt: int
    nodes: Mapping[int, str]
    exits: dict[int, WorkerExit] = field(default_factory=dict)
    hanging: set[int] = field(default_factory=set)
    may_move: bool = False
    may_not_save: bool = False
    may_be_out_of_step: bool = False
    was_out_of_step: bool = False
    stopped: float | None = None
    gone: float | None = None
    resumed: dict[int, str | None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"the group of attempt {self.attempt}"

    @property
    def is_done(self) -> bool:
        """Whether every worker's function returned, and none after it was told of a failure."""
        returned = all(isinstance(self.exits.get(rank), Finished) for rank in self.nodes)
        return returned and not self.was_out_of_step


@dataclass(eq=False)
class Launch:
    """One driver.

    Attributes:
        epoch: That of its lease, 0 until it has one.
        is_leaving: Whether its own machine was said to leave.
        froze: When it was frozen the last time, and when it `thaws`.
        refusals: Groups that the engine did not start.
        result: How it came out; None if it was killed, or runs.
    """

    number: int
    process: Process = field(init=False)
    stage: Stage
    controller: RunController | None = None
    epoch: int = 0
    is_asked_to_stop: bool = False
    is_leaving: bool = False
    refusals: int = 0
    groups: list[Group] = field(default_factory=list)
    result: Outcome | BaseException | None = None
    is_over: bool = False
    ended: float = 0.0
    froze: float = float("inf")
    thaws: float = float("-inf")
    troubles_before: int = 0

    def __post_init__(self) -> None:
        self.process = Process(f"driver {self.number}", self)

    def end(self, result: Outcome | BaseException | None) -> None:
        """Note how it came out, the first time."""
        if not self.is_over:
            self.is_over, self.result, self.ended = True, result, self.stage.now

    def freeze(self, seconds: float) -> None:
        """Note that it is frozen for a while."""
        if self.thaws < self.stage.now:
            self.froze = self.stage.now
        self.thaws = max(self.thaws, self.stage.now + seconds)

    @property
    def was_killed(self) -> bool:
        return self.is_over and self.result is None


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that somebody was told is durable."""

    directory: str
    number: int
    attempt: int
    step: int
    epoch: int


class Truth:
    """What happened, kept apart from the code under test.

    Attributes:
        store: The store without faults.
        acknowledged: The checkpoints of which workers were told that they are durable.
        damaged: Those that the story has damaged.
        heard: When drivers heard of each step from a worker.
        store_troubles: How often the store has failed somebody.
    """

    store: Store

    def __init__(self, story: Story, stage: Stage, tell: Callable[[str], None]) -> None:
        self.story, self.stage, self._tell = story, stage, tell
        self.groups: list[Group] = []
        self.launches: list[Launch] = []
        self.acknowledged: dict[str, Saved] = {}
        self.damaged: set[str] = set()
        self.parts: dict[tuple[int, int], dict[int, tuple[str, bytes]]] = {}
        self.heard: dict[int, list[tuple[float, Launch]]] = {}
        self.leaving: set[str] = set()
        self._numbers: dict[str, int] = {}
        self.store_troubles = 0
        self.may_miss_its_end = (
            False  # as a program does that returns early, or never saves its end
        )

    @property
    def is_prompt(self) -> bool:
        """Whether a driver hears of everything long before it matters."""
        late = {fault.kind for fault in self.story.faults} & {"freeze", "replaced", "slow"}
        short = [one for one in self.story.faults if one.kind == "node drains" and one.length_s < 3]
        is_slow = self.story.setting.store_s or self.store_troubles
        return not (late or short or is_slow)

    def holds(self, invariant: Callable[..., None], *facts: Any) -> None:
        """End the play if an invariant does not hold."""
        try:
            invariant(self, *facts)
        except invariants.Violation as violation:
            self.stage.fail(violation)
            raise

    def is_replaced(self, launch: Launch) -> bool:
        """Whether another driver has taken the run from this one."""
        return self.store.stat(lease_key(launch.epoch + 1)) is not None

    # ------------------------------------------------------------------ groups

    def group_started(
        self, launch: Launch, attempt: int, nodes: Mapping[int, str], alive: Iterable[SimWorker]
    ) -> Group:
        """Take in that an engine has started a group while workers are alive."""
        group = Group(launch, attempt, nodes)
        self._tell(f"{group} starts on {', '.join(nodes.values())}")
        self.holds(invariants.one_group_at_a_time, group, list(alive))
        self.holds(invariants.attempts_are_never_reused, group)
        self.holds(invariants.a_retry_follows_a_loss_within_the_budget, group)
        group.may_move = launch.is_leaving or len(nodes) < self.story.setting.workers
        group.may_move |= bool(self.leaving & set(nodes.values()))
        launch.groups.append(group)
        self.groups.append(group)
        return group

    def group_stopped(self, group: Group) -> None:
        """Take in that the controller stops a group, the first time."""
        if group.stopped is None and group.gone is None:
            self._tell(f"{group} is stopped")
            self.holds(invariants.a_healthy_group_is_left_alone, group)
            group.stopped = self.stage.now

    def worker_ended(self, group: Group, ended: WorkerExit) -> None:
        """Take in how a worker ended."""
        assert ended.rank not in group.exits, f"rank {ended.rank} has ended twice"
        group.exits[ended.rank] = ended
        if len(group.exits) == len(group.nodes):
            group.gone = self.stage.now

    def is_hanging(self, worker: SimWorker) -> None:
        """Take in that a worker will never go on."""
        if worker.group is not None:
            worker.group.hanging.add(worker.rank)

    def may_not_save(self, worker: SimWorker) -> None:
        """Take in that a worker is about to save what cannot be saved."""
        if worker.group is not None:
            worker.group.may_not_save = True

    def may_be_out_of_step(self, worker: SimWorker) -> None:
        """Take in that a worker does not make the same reports as the others."""
        if worker.group is not None:
            worker.group.may_be_out_of_step = True

    def not_saved(self, worker: SimWorker, error: Exception) -> None:
        """Take in that a worker was told that something is not saved."""
        self.may_miss_its_end = True
        if worker.group is not None:
            worker.group.was_out_of_step |= isinstance(error, RanksDisagree)
            self.holds(invariants.what_can_be_saved_is, worker.group, error)

    def is_warned(self, group: Group) -> None:
        """Take in that a worker of a group was told that it will be ended."""
        group.may_move = True

    def lease_taken(self, launch: Launch) -> None:
        """Take in that a driver has become the one that may write."""
        self.holds(invariants.a_live_driver_keeps_its_run, launch)

    def driver_leaves(self, launch: Launch) -> None:
        """Take in that a driver was told that its machine leaves."""
        launch.is_leaving = True
        for group in launch.groups[-1:]:
            group.may_move = True

    def node_leaves(self, name: str) -> None:
        """Take in that a node was said to leave."""
        self.leaving.add(name)
        for group in self.groups:
            if group.gone is None and name in group.nodes.values():
                group.may_move = True

    # ------------------------------------------------------------------ checkpoints

    def part_made(self, group: Group, index: int, rank: int, name: str, data: bytes) -> None:
        """Take in that a worker is about to save something with its report of this count."""
        self.holds(invariants.a_checkpoint_waits_for_all_parts, group, index, rank)
        self.parts.setdefault((group.attempt, index), {})[rank] = name, data

    def contents(self, attempt: int, index: int) -> dict[str, bytes]:
        """Return what the ranks of an attempt have saved with a report; the lowest one's counts."""
        found: dict[str, bytes] = {}
        for _, (name, data) in sorted(self.parts.get((attempt, index), {}).items(), reverse=True):
            found[name] = data
        return found

    def manifest(self, directory: str) -> Manifest | None:
        """Return the manifest that is at rest, None if there is none."""
        try:
            return get_manifest(self.store, directory)
        except ObjectMissing:
            return None

    def acknowledge(self, group: Group, step: int, directory: str) -> None:
        """Take in that a worker is told that its checkpoint is durable."""
        if directory in self.acknowledged:
            return
        self._tell(f"checkpoint {directory} of step {step} is acknowledged")
        self.holds(invariants.what_is_acknowledged_is_at_rest, group, step, directory)
        self.holds(invariants.a_checkpoint_is_of_one_step, group, step, directory)
        manifest = self.manifest(directory)
        assert manifest is not None
        saved = Saved(directory, manifest.number, group.attempt, step, group.launch.epoch)
        self.acknowledged[directory] = saved
        self.holds(invariants.a_replaced_driver_acknowledges_nothing_lost, saved)

    def number_of(self, directory: str | None) -> int:
        """Return the number of a checkpoint that was committed, -1 for none."""
        if directory is None:
            return -1
        if directory not in self._numbers:
            manifest = self.manifest(directory)
            self._numbers[directory] = -1 if manifest is None else manifest.number
        return self._numbers[directory]

    def listed(self, group: Group, directories: list[str]) -> None:
        """Take in which checkpoints a worker is told there are."""
        self.holds(invariants.a_list_holds_the_newest, group, directories)

    def newest(self) -> Saved | None:
        """Return the newest checkpoint that was acknowledged and must still be there.

        Where the story has damaged one, that is any older one that was not given up before.
        """
        known = list(self.acknowledged.values())
        if self.damaged:
            whole = [one for one in known if one.directory not in self.damaged]
            known = [one for one in whole if self.manifest(one.directory) is not None]
        return max(known, key=lambda one: one.number, default=None)

    def damage_newest(self) -> None:
        """Change a byte of the newest checkpoint."""
        saved = self.newest()
        manifest = None if saved is None else self.manifest(saved.directory)
        if saved is None or manifest is None:
            return
        self.damaged.add(saved.directory)
        key = f"{saved.directory}/{manifest.files[0].path}"
        data = self.store.get(key).data
        self.store.put(key, bytes([data[0] ^ 1]) + data[1:])

    def resumed(
        self, worker: SimWorker, directory: str | None, step: int, files: Mapping[str, bytes]
    ) -> None:
        """Take in what a worker begins with."""
        group = worker.group
        if group is None:
            return
        self._tell(f"{worker} begins after step {step}, from {directory}")
        group.resumed[worker.rank] = directory
        self.holds(invariants.nothing_acknowledged_is_lost, group, directory)
        self.holds(invariants.a_resumed_checkpoint_is_as_it_was_saved, directory, step, files)
        self.holds(invariants.all_ranks_resume_alike, group)
