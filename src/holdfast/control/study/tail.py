"""A study in its journal: the last state it wrote down, and what happened since.

    .holdfast/trials/{epoch}-{n}.jsonl      trials that are over, a sealed line each

A state is one record that holds everything. It is written whenever what happened since the last one
has grown much longer than that, so reading a study costs as much as what it has become, not as
much as its past. Trials that are over go to an archive before, so a state stays small.

With a state, what happened before leaves the journal, and must be in all files for people by then.
So that the study need not wait for these, a state may be of an earlier moment: `state_taken` marks
that in the journal, and what happened since is still read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from holdfast.core.checkpoint.record import Event
from holdfast.core.quantities import counted
from holdfast.core.study.events import KINDS, STATE, StateTaken, TrialsArchived
from holdfast.core.study.trial import Trial
from holdfast.errors import Damaged, ObjectMissing
from holdfast.storage.base import Store
from holdfast.storage.records import is_whole, salvage, seal, unseal

ARCHIVE = ".holdfast/trials"


class StudyTail:
    """The last state of a study and what happened since; an account of its journal.

    Attributes:
        state: The last state, None if there is none yet.
        events: What happened since.
    """

    def __init__(self) -> None:
        self.state: Mapping[str, Any] | None = None
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self._is_read = False

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record of the journal."""
        if self._is_read:
            return
        if kind in KINDS:
            self.events.append((kind, data))
        elif kind == STATE:
            since = self._since(data.get("taken"))
            if since is not None:
                self.state, self.events = {**data, "taken": None}, since

    def _since(self, mark: str | None) -> list[tuple[str, Mapping[str, Any]]] | None:
        """Return what happened since a moment, None if the mark of it is damaged.

        A state of that moment is of no use then, and the one before leads to the same.
        """
        if mark is None:
            return []
        for at in reversed(range(len(self.events))):
            kind, data = self.events[at]
            if kind == StateTaken.kind and data["mark"] == mark:
                return self.events[at + 1 :]
        return None

    def to_events(self) -> list[Event]:
        """Return the records that lead to where the study is."""
        state = [] if self.state is None else [(STATE, dict(self.state))]
        return [*state, *((kind, dict(data)) for kind, data in self.events)]

    def forget(self) -> None:
        """Let go of everything, and of what comes: somebody else follows the study now."""
        self.state, self.events, self._is_read = None, [], True


class PackedTail:
    """The same for a compaction, which only passes it on: what happened is packed meanwhile.

    As objects it would take several times the room, and a driver keeps the memory of such a peak.
    """

    def __init__(self) -> None:
        self._tail = StudyTail()

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in one record of the journal."""
        if kind not in (STATE, StateTaken.kind):
            with contextlib.suppress(OverflowError):  # a whole number that is too large for it
                data = {_PACKED: _pack(data)}
        self._tail.apply(kind, data)

    def to_events(self) -> list[Event]:
        """Return the records that lead to where the study is."""
        return [
            (kind, _unpack(data[_PACKED]) if _PACKED in data else data)
            for kind, data in self._tail.to_events()
        ]


_PACKED = ""  # no record has a member of that name
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


def write_archive(store: Store, epoch: int, number: int, trials: Iterable[Trial]) -> str:
    """Put trials that are over to rest; return the key.

    It is of the epoch, so that a driver that was replaced cannot write over its successor's.
    """
    key = f"{ARCHIVE}/{epoch:06d}-{number:06d}.jsonl"
    store.put(key, b"".join(seal(trial.to_data()) + b"\n" for trial in trials))
    return key


class Archiving:
    """Puts trials that are over to rest beside the study, some at a time."""

    def __init__(self, store: Store, epoch: int) -> None:
        self._store, self._epoch = store, epoch
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[str] | None = None
        self._ids: list[str] = []

    @property
    def is_busy(self) -> bool:
        """Whether something was begun that nobody has taken in."""
        return self._writing is not None

    def begin(self, number: int, trials: Sequence[Trial]) -> None:
        """Have trials written down, to which nothing happens any more."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="holdfast-archive")
        self._ids = [trial.trial_id for trial in trials]
        self._writing = self._pool.submit(write_archive, self._store, self._epoch, number, trials)

    def take(self, *, waits: bool) -> TrialsArchived | None:
        """Return what has happened once they are durable, None before; at most once.

        Raises what kept them from being written.
        """
        if self._writing is None or not (waits or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return TrialsArchived(writing.result(), self._ids)

    def close(self) -> None:
        """Return once nothing is being written."""
        if self._pool is not None:
            self._pool.shutdown()


def archived_trials(
    store: Store,
    archives: Sequence[tuple[str, int]],
    damage: dict[str, list[str]],
    problem_with: Callable[[Mapping[str, Any]], str | None] = lambda _: None,
) -> Iterator[Trial]:
    """Yield the trials of all parts of the archive, the last to be put to rest first.

    What is damaged, or what `problem_with` says something about, is passed over, and noted in
    `damage` by its key. Raises `StoreError` if a part
    cannot be read: that is no damage.
    """
    for key, count in reversed(archives):
        trials, problems = _read_part(store, key, count, problem_with)
        if problems:
            damage[key] = problems
        yield from reversed(trials)


def _read_part(
    store: Store,
    key: str,
    count: int,
    problem_with: Callable[[Mapping[str, Any]], str | None],
) -> tuple[list[Trial], list[str]]:
    """Return the trials of one part of the archive, and what is wrong with it."""
    trials, problems = [], []
    try:
        lines = store.get(key).data.splitlines()
    except ObjectMissing:
        return [], [f"it is missing, and with it {counted(count, 'finished trial')}"]
    for number, line in enumerate(lines, start=1):
        whole = [line] if is_whole(line) else salvage(line)  # the newline before it may be gone
        if whole != [line]:
            problems.append(f"line {number}: the record does not match its checksum")
        for record in whole:
            try:
                data = unseal(record)
                if (odd := problem_with(data)) is not None:
                    raise Damaged(odd)
                trials.append(Trial.from_data(data))
            except (Damaged, AttributeError, LookupError, TypeError, ValueError) as error:
                problems.append(f"line {number}: {error}")
    if len(trials) < count:
        problems.append(f"{count - len(trials)} of its {count} trials cannot be read")
    return trials, problems
