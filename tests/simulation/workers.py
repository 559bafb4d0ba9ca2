"""Simulated workers: the real code of a worker process, with a line to its driver that has delays.

What stands in for a user's program trains nothing: it counts steps, reports each, saves what it has
counted, and carries on from there. So what it is given back can be checked to the byte.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import msgspec

from holdfast.channel import Channel
from holdfast.checkpoint import Checkpoint
from holdfast.core.run.outcomes import Died, Evicted, Finished, Raised, WorkerExit
from holdfast.engine.base import WorkerSpec
from holdfast.errors import ConfigError, NotSaved, StoreError
from holdfast.wire import Assigned, LastWords, Message, Warned
from holdfast.worker import entry
from holdfast.worker.context import WorkerContext
from holdfast.worker.job import Task, unpack_job, unpack_task
from holdfast.worker.reporting import Mode, Save
from tests.simulation.stage import Actor, Killed, Process, stage_here
from tests.simulation.story import Fault

if TYPE_CHECKING:
    from tests.simulation.truth import Group
    from tests.simulation.world import World

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


class _Exited(BaseException):
    """The process ends where it stands, with this code."""

    def __init__(self, code: int) -> None:
        self.code = code


class SimChannel(Channel):
    """The worker's end of its line to the driver; messages take a while and keep their order."""

    def __init__(self, worker: SimWorker) -> None:  # its parent has a socket, it has none
        self._worker, self._stage = worker, worker.world.stage
        self._inbox: deque[Message] = deque()
        self._listener: Actor | None = None
        self._arrives = {"in": 0.0, "out": 0.0}
        self.is_closed = False

    def _when(self, way: str) -> float:
        """Return when something arrives that is sent now: never before what was sent earlier."""
        when = max(self._stage.now + self._worker.world.delay_s(), self._arrives[way])
        self._arrives[way] = when
        return when

    def send(self, message: Message) -> None:
        self._stage.check()
        if isinstance(message, LastWords):
            self._worker.words = message
            return
        copy: Message = _decode(_encode(message))
        self._stage.at(self._when("out"), partial(self._worker.say, copy))

    def flush(self, timeout_s: float | None = 0.0) -> bool:
        self._stage.check()
        return True

    def wait(self, timeout_s: float | None = None) -> list[Message]:
        while not self._inbox and not self.is_closed:
            self._listener = self._stage.current
            self._stage.wait("word from the driver", timeout_s)
        found = list(self._inbox)
        self._inbox.clear()
        return found

    def after_all_said(self, do: Callable[[], None]) -> None:
        """Have something happen once everything that was said has arrived."""
        self._stage.at(self._when("out"), do)

    def take(self, message: Message) -> None:
        """Let a message of the driver's be on its way here."""
        copy: Message = _decode(_encode(message))
        self._stage.at(self._when("in"), partial(self._arrive, copy))

    def _arrive(self, message: Message) -> None:
        self._inbox.append(message)
        if self._listener is not None:
            self._stage.wake(self._listener)


class SimWorker:
    """A worker process.

    Attributes:
        group: What is known of its group; None if it only validates.
        say: What is done with its messages when they arrive.
        ended: What is done with its end.
        is_stuck: Whether it will never get anything to the store again.
        is_unsavable: Whether the next folder that it saves is not there.
        slow_store_s: How long the next thing takes that it puts to the store.
        work: What it does in place of the entry point of a process.
    """

    def __init__(
        self,
        world: World,
        spec: WorkerSpec,
        attempt: int,
        group: Group | None,
        *,
        say: Callable[[SimWorker, Message], None],
        ended: Callable[[SimWorker, WorkerExit], None],
        work: Work,
    ) -> None:
        self.world, self.spec, self.attempt, self.group = world, spec, attempt, group
        self.rank, self.node = spec.rank, spec.node
        self.say, self._on_end, self._work = partial(say, self), ended, work
        self.process = Process(f"rank {self.rank} of attempt {attempt}", self)
        self.channel = SimChannel(self)
        if spec.first is not None:
            self.channel.take(spec.first)
        self.words: LastWords | None = None
        self.context: WorkerContext | None = None
        self.is_stopped = self.node_lost = self.is_over = False
        self.is_stuck = self.is_unsavable = False
        self.slow_store_s = 0.0
        self._code: int | None = None
        self._signal: int | None = None

    def __str__(self) -> str:
        return str(self.process)

    def begin(self) -> None:
        """Start the process."""
        if not self.is_over:
            self.world.stage.start(self.process, self.process.name, self._run)

    def _run(self) -> None:
        try:
            self._work(self)
        except Killed:
            raise
        except _Exited as exited:
            self._code = exited.code
        except BaseException as error:  # noqa: BLE001  # as a real worker's: the driver is told
            self.channel.send(entry._last_words(error))  # noqa: SLF001
        self._end()

    def exit(self, code: int) -> NoReturn:
        """End it from inside, as `os._exit` does."""
        raise _Exited(code)

    def die(self, signal: int) -> None:
        """End it from outside, as a signal does that cannot be caught."""
        self._signal = signal
        self._end()

    def hold_up(self, what: str) -> None:
        """Let it wait where it stores something, if the story says so."""
        stage = self.world.stage
        if self.is_stuck:
            self.world.tell(f"{self} is stuck: {what}")
            self.world.truth.is_hanging(self)
            stage.wait(f"ever, in {what}")
        if self.slow_store_s:
            slow_s, self.slow_store_s = self.slow_store_s, 0.0
            stage.sleep(slow_s, f"the slow store to {what}")

    def hear_signal(self, number: int) -> None:
        """Let it be told by a signal that it will be ended; another thread passes that on."""
        context = self.context
        if context is not None:
            say = partial(context.conversation.say, Warned(number))
            self.world.stage.start(self.process, "signals", say)

    def _end(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.world.stage.kill(self.process)
        ended = self._outcome()
        self.world.tell(f"attempt {self.attempt}: {ended.describe()}")
        self._on_end(self, ended)

    def _outcome(self) -> WorkerExit:
        rank, node, words = self.rank, self.node, self.words
        if self.node_lost:
            return Died(rank, node, 1, node_lost=True)
        if words is not None and words.error is not None:
            return Raised(rank, node, words.error, words.trace)
        if words is not None:
            return Finished(rank, node)
        if self.is_stopped:
            return Evicted(rank, node)
        if self._signal is not None:
            return Died(rank, node, 1, signal=self._signal)
        return Died(rank, node, 1, exit_code=self._code or 0)


# ---------------------------------------------------------------------- what a worker does


Work: TypeAlias = Callable[[SimWorker], None]


def do_job(worker: SimWorker) -> None:
    """Do the job that the driver sends, with the code of a real worker."""
    first = worker.spec.first
    # Given the task, it does not wait for signals, which nobody sends here.
    if isinstance(first, Assigned):
        task = unpack_task(unpack_job(first.job).task)
    else:
        task = Task(train, None, (remember,))
    jobs = entry.JobQueue(worker.channel, partial(worker.exit, entry.DRIVER_IS_GONE))
    job = jobs.next_job()
    assert job is not None, "the end of its driver ends a worker"
    value = entry._work(jobs, job, task=task)  # noqa: SLF001
    worker.channel.send(LastWords(value=entry._pickled(value)))  # noqa: SLF001


# ---------------------------------------------------------------------- the user's program


class Trouble(Exception):
    """What the program raises when the story says so."""


def here() -> SimWorker:
    """Return the worker whose program calls."""
    stage = stage_here()
    assert stage is not None and stage.current is not None
    worker = stage.current.process.owner
    assert isinstance(worker, SimWorker)
    return worker


def remember(context: WorkerContext) -> None:
    """Prepare a worker: there are many in one process here, and each has its own context."""
    here().context = context


def train() -> int:
    """Count the steps of a run, and return how far it got."""
    worker = here()
    world, program, context = worker.world, worker.world.story.program, worker.context
    assert context is not None
    step = _load(worker, context)
    while step < program.steps:
        step += 1
        leaves = False
        for fault in world.faults_at_step(worker.rank, context.place.world_size, step):
            world.tell(f"{worker} at step {step}: {fault.kind}")
            leaves |= _suffer(worker, context, fault)
        if leaves:
            return step - 1
        world.stage.sleep(program.step_s * world.dice.uniform(0.5, 1.5), f"step {step}")
        is_wanted = noticed = False
        if program.on_notice != "ignore":
            noticed = context.notice() is not None
            is_wanted = context.is_save_wanted()
        if noticed and program.on_notice == "flee":
            return step - 1
        _report(worker, context, step, is_wanted=is_wanted)
        if noticed and program.on_notice == "leave":
            return step
    if program.lists and worker.rank == 0:
        context.checkpoints(validated=program.validates, timeout_s=30.0)
    return step


def _suffer(worker: SimWorker, context: WorkerContext, fault: Fault) -> bool:
    """Let something go wrong; return whether the program returns because of it."""
    stage, truth = worker.world.stage, worker.world.truth
    match fault.kind:
        case "raise":
            raise Trouble("the story says so")
        case "die":
            raise _Exited(1 + fault.rank)
        case "hang":
            truth.is_hanging(worker)
            stage.wait("ever, in its program")
        case "slow":
            stage.sleep(fault.length_s, "its slow program")
        case "return":
            truth.may_miss_its_end = True
            truth.may_be_out_of_step(worker)
            return True
        case "extra":
            truth.may_be_out_of_step(worker)
            context.reporter.report({"extra": fault.at})
        case "stuck":
            worker.is_stuck = True
        case "slow store":
            worker.slow_store_s = fault.length_s
        case _:
            worker.is_unsavable = True
    return False


def _load(worker: SimWorker, context: WorkerContext) -> int:
    """Return how far the run had come, from the checkpoint there is."""
    checkpoint = context.checkpoint
    if checkpoint is None:
        worker.world.truth.resumed(worker, None, 0, {})
        return 0
    folder = os.path.join(worker.world.scratch, f"load-{worker.attempt}-{worker.rank}")
    checkpoint.to_directory(folder)
    files = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            files[name] = file.read()
    step: int = json.loads(next(iter(files.values())))["step"]
    directory = worker.world.directory_of(checkpoint)
    worker.world.truth.resumed(worker, directory, step, files)
    return step


def _report(worker: SimWorker, context: WorkerContext, step: int, *, is_wanted: bool) -> None:
    program = worker.world.story.program
    is_due = step % program.save_every == 0 or step == program.steps
    save = None
    if (is_due or is_wanted) and _is_saver(worker):
        save = _save(worker, context, step)
    metrics = {"step": step, "loss": (step * 7) % 5, "attempt": worker.attempt}
    try:
        context.reporter.report(metrics, save)
    except (NotSaved, StoreError, ConfigError) as error:
        worker.world.truth.not_saved(worker, error)
        if not program.is_tolerant:
            raise


def _is_saver(worker: SimWorker) -> bool:
    match worker.world.story.program.savers:
        case "all":
            return True
        case "first":
            return worker.rank == 0
        case _:
            return worker.rank % 2 == 0


def _save(worker: SimWorker, context: WorkerContext, step: int) -> Save:
    program = worker.world.story.program
    name = "model.json" if program.shares_name else f"part-{worker.rank}.json"
    facts = {"step": step, "rank": worker.rank, "attempt": worker.attempt}
    data = json.dumps(facts).encode()
    validation: dict[str, Any] | None = {} if program.validates and worker.rank == 0 else None
    if program.mode == "already":
        return _save_already(worker, context, step, data, validation)
    folder = os.path.join(worker.world.scratch, f"save-{worker.attempt}-{worker.rank}")
    if program.moves:
        folder += f"-{step}"
    if worker.is_unsavable:
        worker.is_unsavable, folder = False, f"{folder}-is-not-there"
        worker.world.truth.may_not_save(worker)
    else:
        assert worker.group is not None
        index = context.reporter.count + 1
        worker.world.truth.part_made(worker.group, index, worker.rank, name, data)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    later = program.mode == "later" or (program.mode == "mixed" and step % 2 == 0)
    return Save(
        checkpoint=Checkpoint.from_directory(folder),
        mode=Mode.LATER if later else Mode.NOW,
        directory=f"named/step-{step}" if program.names else None,
        deletes=program.moves,
        validation=validation,
    )


def _save_already(
    worker: SimWorker,
    context: WorkerContext,
    step: int,
    data: bytes,
    validation: dict[str, Any] | None,
) -> Save:
    """Put a part to the run's folder, as a user's own code does that writes to storage itself."""
    assert worker.group is not None
    name, folder = f"part-{worker.rank}.json", f"placed/{worker.attempt}-{step}"
    index = context.reporter.count + 1
    worker.world.truth.part_made(worker.group, index, worker.rank, name, data)
    worker.slow_store_s = 0.0  # nobody could tell that from a program that hangs
    context.store.put(f"{folder}/{name}", data)
    checkpoint = Checkpoint(f"{context.store.url}/{folder}")
    return Save(checkpoint=checkpoint, mode=Mode.ALREADY, validation=validation)


def validate(checkpoint: Checkpoint, **_: Any) -> dict[str, Any]:
    """Judge a checkpoint; now and then that goes wrong."""
    worker = here()
    luck = worker.world.dice.random()
    worker.world.stage.sleep(luck * 3, "its validation")
    if luck < 0.1:
        raise Trouble("a validation fails")
    if luck < 0.15:
        worker.world.stage.wait("ever, in its validation")
    if luck < 0.2:
        raise _Exited(3)
    return {"score": luck, "of": worker.world.directory_of(checkpoint)}
