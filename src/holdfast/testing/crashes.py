"""Enumerates every state of a disk that a power cut could leave behind, from a recorded log.

The model is the worst a journaling file system may do by its contract, not what one of them
happens to do. At the moment of the cut:

- Bytes are durable once their file was synced after the write. Each later write or truncation is
  kept or lost on its own, in any combination; a kept write may be cut short, and a file may have
  grown while zeros stand for the bytes, or for the first half of them.
- A name is durable once its folder was synced after the change (create, link, rename, remove,
  mkdir, rmdir). Each later change is kept or lost on its own, independent of the bytes, and
  syncing a file makes no name durable.
- A rename is one change, also between folders: both entries change or neither does. It is durable
  once *either* folder was synced, because a journal holds it as one transaction. Where the name
  of the folder it leads into is lost, the rename is lost too, synced or not, so that nothing
  vanishes by being moved and no folder ends up inside itself.
- Changes of one and the same entry happen in order: none is kept if an earlier one of that entry
  was lost, or `rename a b; rename c a` could lose `a` altogether. All other changes have no order,
  not even within a folder, nor have names and bytes.
- Everything below a folder whose own name was lost is lost with it, synced or not. A file or
  folder that has no name left is gone.

Marks in the log are promises: the states after a mark are listed with it, so that a test can
compare them with what was acknowledged by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast.testing.disk import SimDisk
from holdfast.testing.fates import KEPT, Choices, Effort, Fate, Pending
from holdfast.testing.oplog import Marked, Named, Operation, Synced, Truncated, Written
from holdfast.testing.replay import Moment, Replay


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One power cut: when it came and what was lost; `str()` describes it in one line.

    Attributes:
        number: Which state of the enumeration this is, from 1.
        position: How many operations of the log had been done.
        marks: The labels passed by then, in order.
        state: A hash of all names and contents, equal for equal states within one process.
    """

    number: int
    position: int
    marks: tuple[str, ...]
    state: int
    _log: Sequence[Operation] = field(repr=False, compare=False)
    _pending: Sequence[Pending] = field(repr=False, compare=False)
    _fates: tuple[Fate, ...] = field(repr=False, compare=False)

    @property
    def lost(self) -> list[str]:
        """Descriptions of the changes that are not on the disk, or only in part."""
        pairs = zip(self._pending, self._fates, strict=True)
        return [item.described(fate) for item, fate in pairs if fate != KEPT]

    def __str__(self) -> str:
        last = f" ({self._log[self.position - 1]})" if self.position else ""
        promised = f" with {self.marks[-1]!r}" if self.marks else ""
        return (
            f"state {self.number}: cut after operation {self.position} of {len(self._log)}{last}"
            f"{promised}; lost: {', '.join(self.lost) or 'nothing'}"
        )


def crash_states(
    disk: SimDisk, effort: Effort | None = None, *, since: int = 0
) -> Iterator[tuple[CrashPoint, SimDisk]]:
    """Yield every state a power cut could have left, at any moment since operation `since`.

    A state comes once for each sequence of marks it can occur under. The disk that comes with it
    holds only what survived, all of it durable, and begins a log of its own: for a second cut
    during recovery, call `crash_states` with that disk.
    """
    effort = effort if effort is not None else Effort()
    log = tuple(disk.log)
    replay = Replay(disk.start)
    marks: tuple[str, ...] = ()
    seen: set[int] = set()
    number = 0
    complete = False  # whether all states of all earlier moments were seen
    for position, operation in enumerate((None, *log)):
        pinned = False
        if operation is not None:
            replay.take(position, operation)
        match operation:
            case Named() | Written() | Truncated():
                pinned = True  # if it is lost, the states are those of the moment before
            case Synced() if complete:
                continue  # a sync adds no states, it only rules some out
            case Marked(label):
                marks = (*marks, label)
                seen.clear()
            case _:
                pass
        if position < since:
            continue
        moment = Moment(replay)
        choices = Choices(moment.pending, effort, pinned=pinned)
        complete = choices.are_all and (complete or not pinned)
        for fates in choices:
            state = moment.state_of(fates)
            if state in seen:
                continue
            seen.add(state)
            number += 1
            point = CrashPoint(number, position, marks, state, log, moment.pending, fates)
            yield point, SimDisk(image=moment.image_of(fates), clock=disk.clock)


def effective_syncs(disk: SimDisk) -> dict[int, str]:
    """Return the syncs in the log that made something durable, by their numbers.

    `Drop.nth` uses the same numbers. Dropping one of these is a mutation that a test must catch;
    dropping any other sync changes nothing.
    """
    replay = Replay(disk.start)
    effective: dict[int, str] = {}
    nth = 0
    for position, operation in enumerate(disk.log, start=1):
        before = dict(replay.pending)
        replay.take(position, operation)
        if isinstance(operation, Synced):
            nth += 1
            if replay.pending != before:
                effective[nth] = str(operation)
    return effective
