"""A rank's part of a dataset, which knows how far all ranks have come.

Rows are dealt out like cards: of the rows not yet consumed in this epoch, rank r of n gets row r,
r + n, r + 2n … So when every rank has consumed k rows, the first k·n rows are consumed and no
others, whatever n is: one number says where all of them are, and a group of another size can go on
from there. That the ranks go in step is what training does: each step takes a batch on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.core.names import shown
from holdfast.data.blocks import Block
from holdfast.data.checks import whole
from holdfast.data.plan import Plan, WholeRounds
from holdfast.data.reading import Buffer, Reader, Reading
from holdfast.data.selection import EVERYTHING
from holdfast.data.shuffle import Shuffle
from holdfast.data.sources import Held
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data.dataset import Dataset

STATE_VERSION = 1


@dataclass
class Progress:
    """Where all ranks are, as one loop knows it; the next loop has one of its own.

    `window` is the local shuffle in this epoch: over how many rows of all ranks, by which seed.
    """

    epoch: int = 0
    position: int = 0
    window: tuple[int, int] | None = None
    is_between: bool = True  # no loop has begun here

    def next_loop(self) -> Progress:
        """Return where the next loop begins."""
        if self.is_between:
            return replace(self, is_between=False)
        return Progress(epoch=self.epoch + 1, is_between=False)


class DataIterator(Reader):
    """The rows one rank gets: the same in every attempt, in step with the other ranks.

    Each loop over `iter_rows`, `iter_batches` or `iter_torch_batches` is an epoch, also if it is
    left early. Ranks stay in step if they loop with the same batch size.

    `state_dict` says, at any moment, which rows all ranks have consumed. After `load_state_dict`
    the next loop goes on there, in the middle of the epoch, with any number of ranks.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        world_size: int = 1,
        rank: int = 0,
        equal: bool = True,
        name: str | None = None,
    ) -> None:
        self._plan, self._length = plan, plan.length()
        self._world_size = whole("world_size", world_size, "it is how many ranks", at_least=1)
        self._rank = whole("rank", rank, "ranks are counted from 0", at_least=0)
        if self._rank >= self._world_size:
            raise ConfigError(f"rank={rank}: not less than world_size={world_size}")
        self._equal, self._name = equal, name
        self._progress = Progress()

    def state_dict(self) -> dict[str, Any]:
        """Return where all ranks are, as values that JSON can hold.

        The batch that a loop was last given counts as consumed, also after the loop was left. The
        state of any rank is good for every rank.
        """
        now = self._progress
        window = now.window if now.position else None
        return {
            "version": STATE_VERSION,
            "epoch": now.epoch,
            "position": now.position,
            "rows": self._length,
            "seeds": self._plan.seeds(),
            "local_shuffle": None if window is None else list(window),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next loop go on where `state` was taken; on every rank, and with any number.

        The rows that no rank has consumed are dealt out anew, in the order that this epoch had.
        Raises `ConfigError`, and changes nothing, if the state is of other data.
        """
        saved = checked_state(state)
        seeds = self._plan.seeds()
        if len(saved["seeds"]) != len(seeds):
            raise ConfigError(
                f"the state is of a dataset with {len(saved['seeds'])} shuffles, this one has"
                f" {len(seeds)}: its rows are in another order"
            )
        if self._length != saved["rows"]:
            raise ConfigError(
                f"the state is of a dataset of {_told(saved['rows'])} rows, this one has"
                f" {_told(self._length)}: the rows consumed so far cannot be told from the others",
                hint="give the same data again, or load no state and begin a new epoch",
            )
        window = saved["local_shuffle"]
        self._plan = self._plan.reseeded(iter(saved["seeds"]))
        self._progress = Progress(
            saved["epoch"], saved["position"], None if window is None else (window[0], window[1])
        )

    def materialize(self) -> Dataset:
        """Return this rank's rows of a whole epoch, in memory; that consumes nothing."""
        from holdfast.data.dataset import Dataset

        rows = self._dealt(self._plan, Progress(epoch=self._progress.epoch))
        return Dataset(Held(held=tuple(rows)), name=self._name)

    def __repr__(self) -> str:
        name = "" if self._name is None else f"{self._name!r}, "
        now = f"epoch {self._progress.epoch}, position {self._progress.position}"
        return f"DataIterator({name}rank {self._rank} of {self._world_size}, {now})"

    def _sample(self) -> Plan:
        return self._plan

    def _start(self, buffer: Buffer | None) -> Reading:
        now = self._progress = self._progress.next_loop()
        if now.position == 0:  # else the epoch goes on in the order in which it began
            now.window = None if buffer is None else self._window(buffer)
        plan = self._plan
        if now.window is not None:
            rows, seed = now.window
            plan = Shuffle((plan,), seed=seed, window=rows)
        mine = self._dealt(plan, now)
        if self._equal:
            return _Counted(mine, now, self._world_size)
        return _CountedUnequal(mine, now, self._world_size, self._length)

    def _window(self, buffer: Buffer) -> tuple[int, int]:
        """Return over how many rows of all ranks they are mixed, and by which seed.

        All ranks deal by this order, so it must be the same for all of them; and what seed another
        rank was given, a rank cannot know.
        """
        [seed] = self._plan.seeds()[-1:] or [0]
        if self._world_size == 1 and buffer.seed is not None:
            seed = buffer.seed
        return buffer.rows * self._world_size, seed

    def _dealt(self, plan: Plan, now: Progress) -> Iterator[Block]:
        """Return this rank's part of the rows that are left."""
        if self._equal:
            plan = _in_whole_rounds(plan, self._world_size, now.position)
        mine = range(now.position + self._rank, EVERYTHING.stop, self._world_size)
        return plan.blocks(mine, now.epoch)


class _Counted(Reading):
    """A loop that counts. Once another has begun, nobody looks at what it counts."""

    def __init__(self, blocks: Iterator[Block], progress: Progress, ranks: int) -> None:
        super().__init__(blocks)
        self._progress, self._ranks = progress, ranks

    def hand_out(self, rows: int, asked: int) -> None:
        self._progress.position += rows * self._ranks

    def finish(self) -> None:
        self._progress.epoch += 1
        self._progress.position = 0
        self._progress.is_between = True


class _CountedUnequal(_Counted):
    """A loop that may get a row less than another rank's: what it asked for is what others got."""

    def __init__(
        self, blocks: Iterator[Block], progress: Progress, ranks: int, end: int | None
    ) -> None:
        super().__init__(blocks, progress, ranks)
        self._end = EVERYTHING.stop if end is None else end

    def hand_out(self, rows: int, asked: int) -> None:
        self._progress.position = min(self._progress.position + asked * self._ranks, self._end)


def checked_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state that can be used; raise if it is none."""
    if not isinstance(state, Mapping):
        raise ConfigError(f"a state is what state_dict() returned, not {type(state).__name__}")
    if state.get("version") != STATE_VERSION:
        raise ConfigError(
            f"a state of version {shown(state.get('version'))}: this Holdfast knows version"
            f" {STATE_VERSION}",
            hint="a newer Holdfast may have written it" if "version" in state else None,
        )
    saved = {name: state.get(name) for name in _STATE}
    for name, is_good in _STATE.items():
        if not is_good(saved[name]):
            raise ConfigError(f"this is no state of an iterator: {name} is {shown(saved[name])}")
    return saved


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_counts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_count, value))


_STATE: dict[str, Callable[[Any], bool]] = {
    "epoch": _is_count,
    "position": _is_count,
    "rows": lambda rows: rows is None or _is_count(rows),
    "seeds": _are_counts,
    "local_shuffle": lambda window: (
        window is None or (_are_counts(window) and len(window) == 2 and window[0] > 0)
    ),
}


def _in_whole_rounds(plan: Plan, players: int, start: int) -> Plan:
    """Return `plan` without an incomplete last round, put in as deep as the rows are the same.

    What lies above maps only the rows that a rank gets, also where all must be counted below.
    """
    if plan.keeps_rows:
        [below] = plan.inputs
        return replace(plan, inputs=(_in_whole_rounds(below, players, start),))
    return WholeRounds((plan,), players=players, start=start)


def _told(rows: int | None) -> str:
    return "an unknown number of" if rows is None else str(rows)
