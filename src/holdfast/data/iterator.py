"""`DataIterator`: a rank's part of a dataset, with the position of all ranks.

Rows are dealt out like cards: of the rows not yet consumed in this epoch, rank r of n gets row r,
r + n, r + 2n … So when every rank has consumed k rows, exactly the first k·n rows are consumed: one
number is the position of all ranks, and a group of another size can continue from there. The ranks
are in step because each training step takes a batch on every rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from holdfast.core.names import shown
from holdfast.data.blocks import Block
from holdfast.data.fingerprint import (
    Fingerprint,
    checked_fingerprint,
    differences,
    fingerprint_of,
    joined_differences,
)
from holdfast.data.plan import Plan, WholeRounds
from holdfast.data.reading import Buffer, Reader, Reading
from holdfast.data.selection import EVERYTHING
from holdfast.data.share import Share
from holdfast.data.shuffle import Shuffle
from holdfast.data.sources import in_memory
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.data.dataset import Dataset

STATE_VERSION = 1
_SAME_DATA = "use the same data again, or load no state and begin a new epoch"


@dataclass
class Progress:
    """The position of all ranks, at which the next loop begins, in this or another process.

    `window` is the local shuffle of this epoch: its size in rows of all ranks, and its seed.
    """

    epoch: int = 0
    position: int = 0
    window: tuple[int, int] | None = None

    def end_epoch(self) -> None:
        self.epoch, self.position, self.window = self.epoch + 1, 0, None


class DataIterator(Reader):
    """The rows of one rank: the same in every attempt, in step with the other ranks.

    Each loop over `iter_rows`, `iter_batches` or `iter_torch_batches` is an epoch, even if it is
    left early. Nested loops are refused. Ranks stay in step if they loop with the same batch size.

    `state_dict` tells at any moment which rows all ranks have consumed. After `load_state_dict`,
    the next loop continues there, within the epoch, with any number of ranks: it is the very loop
    that would have come next in the process that saved.
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
        self._plan = plan
        self._share = Share(plan.length(), world_size, rank, equal, name)
        self._progress = Progress()
        self._is_looping = False
        self._counted: tuple[int, int] | None = (
            None  # an epoch that was read to its end, and its number of rows
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position of all ranks, as JSON data.

        The batch that a loop got last counts as consumed. A loop that was left has ended its epoch.
        The state of any rank is valid for every rank.
        """
        now = self._progress
        window = now.window if now.position else None
        return {
            "version": STATE_VERSION,
            "epoch": now.epoch,
            "position": now.position,
            "rows": self._share.length,
            "seeds": self._plan.seeds(),
            "local_shuffle": None if window is None else list(window),
            "data": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Make the next loop continue where `state` was taken, with any number of ranks.

        The remaining rows of the epoch are dealt out again, in the same order. Raises
        `ConfigError`, and changes nothing, if the state belongs to other data.
        """
        self._must_not_be_looping()
        saved = checked_state(state)
        if saved["data"] is not None:
            self._must_be_same_data(checked_fingerprint(saved["data"]))
        self._must_fit(saved)
        window = saved["local_shuffle"]
        self._plan = self._plan.reseeded(iter(saved["seeds"]))
        self._progress = Progress(
            saved["epoch"], saved["position"], None if window is None else (window[0], window[1])
        )

    @cached_property
    def _fingerprint(self) -> Fingerprint:
        return fingerprint_of(self._plan)

    def _must_be_same_data(self, saved: Fingerprint) -> None:
        now = self._fingerprint
        if texts := differences(saved["rows"], now["rows"]):
            raise ConfigError(
                f"the state belongs to other data: {joined_differences(texts)}; the rows consumed"
                " so far cannot be told from the others",
                hint=_SAME_DATA,
            )
        if texts := differences(saved["values"], now["values"]):
            self._share.log_once(
                "values",
                f"{self._share.dataset} has the same rows as the state, but computes other values"
                f" from them: {joined_differences(texts)}",
            )

    def _must_fit(self, saved: Mapping[str, Any]) -> None:
        """Raise if a state without a fingerprint, or an edited one, belongs to other data."""
        rows, shuffles = self._share.length, len(self._plan.seeds())
        if len(saved["seeds"]) != shuffles:
            raise ConfigError(
                f"the state belongs to a dataset with {len(saved['seeds'])} shuffles, this one has"
                f" {shuffles}: its rows are in another order",
                hint=_SAME_DATA,
            )
        if rows != saved["rows"]:
            raise ConfigError(
                f"the state belongs to a dataset of {_number(saved['rows'])} rows, this one has"
                f" {_number(rows)}: the rows consumed so far cannot be told from the others",
                hint=_SAME_DATA,
            )
        if rows is not None and saved["position"] > rows:
            raise ConfigError(
                f"this is not the state of an iterator: position is {saved['position']}, and there"
                f" are {rows} rows"
            )

    def materialize(self) -> Dataset:
        """Return this rank's rows of a whole epoch, in memory, without consuming them."""
        from holdfast.data.dataset import Dataset

        rows = self._dealt(self._plan, Progress(epoch=self._progress.epoch), None)
        return Dataset(in_memory(rows), name=self._share.name)

    def __repr__(self) -> str:
        name = "" if self._share.name is None else f"{self._share.name!r}, "
        now = f"epoch {self._progress.epoch}, position {self._progress.position}"
        return f"DataIterator({name}rank {self._share.rank} of {self._share.world_size}, {now})"

    def _sample(self) -> Plan:
        return self._plan

    def _start(self, buffer: Buffer | None) -> Reading:
        self._must_not_be_looping()
        now = self._progress
        if now.position == 0:  # otherwise the epoch keeps the order in which it began
            now.window = None if buffer is None else self._window(buffer)
        plan = self._plan
        if now.window is not None:
            rows, seed = now.window
            plan = Shuffle((plan,), seed=seed, window=rows)
        share, epoch, start = self._share, now.epoch, now.position

        def counted(rows: int) -> None:
            self._must_be_as_many(epoch, rows)
            if start == 0:
                share.must_reach_all_ranks(rows)
            share.log_remainder(epoch, start, rows)

        if share.length is not None:
            share.log_remainder(epoch, start, share.length)
        blocks = self._dealt(plan, now, counted)
        self._is_looping = True
        return _Loop(blocks, now, share, self._end_loop)

    def _window(self, buffer: Buffer) -> tuple[int, int]:
        """Return the size of a local shuffle, in rows of all ranks, and its seed.

        The order must be the same for all ranks, and a rank cannot know the seed that another one
        was given.
        """
        [seed] = self._plan.seeds()[-1:] or [0]
        if self._share.world_size == 1 and buffer.seed is not None:
            seed = buffer.seed
        return buffer.rows * self._share.world_size, seed

    def _dealt(
        self, plan: Plan, now: Progress, counted: Callable[[int], None] | None
    ) -> Iterator[Block]:
        """Return this rank's part of the remaining rows."""
        if self._share.equal:
            plan = _in_whole_rounds(plan, self._share.world_size, now.position, counted)
        wanted = range(now.position + self._share.rank, EVERYTHING.stop, self._share.world_size)
        return plan.read(wanted, now.epoch)

    def _must_be_as_many(self, epoch: int, rows: int) -> None:
        """Raise if the steps have made a different number of rows than in an earlier epoch.

        Then they keep state between passes, or use random numbers, and the ranks do not deal out
        the same rows.
        """
        before, rows_before = self._counted or (epoch, rows)
        self._counted = epoch, rows
        if rows != rows_before and not self._plan.may_change_its_length():
            raise ConfigError(
                f"{self._share.dataset} had {rows_before} rows in epoch {before} and {rows} in"
                f" epoch {epoch}: {self._plan.described_as_a_whole()} must make the same rows in"
                " every pass, or ranks do not agree on which rank gets which row",
                hint="if a function keeps state, make it a class with __call__, so that each pass"
                " has its own instance; if it uses random numbers, derive them from the row",
            )

    def _must_not_be_looping(self) -> None:
        if self._is_looping:
            raise ConfigError(
                f"{self._share.dataset} is being looped over already on this rank, and a shard has"
                " one position: a nested loop would lose that of the outer one",
                hint="end or leave the outer loop first (del its iterator, if you hold one); to"
                " look at rows meanwhile, loop over shard.materialize()",
            )

    def _end_loop(self) -> None:
        self._is_looping = False

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_is_looping": False}  # a loop is not pickled; its position is


class _Loop(Reading):
    """A loop over a shard, which moves the shard's position."""

    def __init__(
        self,
        blocks: Iterator[Block],
        progress: Progress,
        share: Share,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(blocks)
        self._progress, self._share, self._ended = progress, share, ended
        self._is_whole = progress.position == 0
        self._rows = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._ended()
        super().__exit__(kind)

    def hand_out(self, rows: int, asked: int) -> None:
        self._rows += rows
        ranks, now = self._share.world_size, self._progress
        if self._share.equal:
            now.position += rows * ranks
        else:  # other ranks may have got one row more: count what was asked for
            end = EVERYTHING.stop if self._share.length is None else self._share.length
            now.position = min(now.position + asked * ranks, end)

    def finish(self) -> None:
        if self._is_whole and not self._share.equal:
            self._share.must_have_rows(self._rows)
        self._progress.end_epoch()

    def leave(self) -> None:
        self._share.log_leaving(self._progress.epoch, self._progress.position)
        self._progress.end_epoch()


def checked_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a valid state; raise `ConfigError` if it is none."""
    if not isinstance(state, Mapping):
        raise ConfigError(f"a state must come from state_dict(), not be a {type(state).__name__}")
    if state.get("version") != STATE_VERSION:
        raise ConfigError(
            f"a state of version {shown(state.get('version'))}: this Holdfast reads version"
            f" {STATE_VERSION}",
            hint="a newer Holdfast may have written it" if "version" in state else None,
        )
    saved = {name: state.get(name) for name in _STATE}
    for name, is_good in _STATE.items():
        if not is_good(saved[name]):
            raise ConfigError(
                f"this is not the state of an iterator: {name} is {shown(saved[name])}"
            )
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
    "data": lambda _: True,  # see `checked_fingerprint`
    "local_shuffle": lambda window: (
        window is None or (_are_counts(window) and len(window) == 2 and window[0] > 0)
    ),
}


def _in_whole_rounds(
    plan: Plan, players: int, start: int, counted: Callable[[int], None] | None
) -> Plan:
    """Return `plan` without an incomplete last round, cut off below all steps that keep rows.

    So those steps map only the rows of this rank, even if all rows must be counted below them.
    """
    if plan.keeps_rows:
        [source] = plan.inputs
        return replace(plan, inputs=(_in_whole_rounds(source, players, start, counted),))
    return WholeRounds((plan,), players=players, start=start, counted=counted)


def _number(rows: int | None) -> str:
    return "an unknown number of" if rows is None else str(rows)
