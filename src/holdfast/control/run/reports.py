"""Gathers the reports of the ranks of a group, and their checkpoints: pure bookkeeping.

The reports of a rank are counted, and a checkpoint belongs to a count. The lowest rank with a part
names it, so it begins when all lower ones have made the report of that count. If the user names its
folder, some rank may have put its part there already: then it begins when every rank has made that
report. It is ready when every rank that has not returned has made the report, and all ranks with a
part have delivered. Checkpoints become ready in the order of their counts. If ranks are not in step
(`core.run.rank_agreement`), none of that count or a later one is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from holdfast.checkpoint.commit import Slot
from holdfast.core.checkpoint.manifest import Part
from holdfast.core.run.rank_agreement import RankAgreement


@dataclass(slots=True)
class Gathered:
    """A checkpoint in the making.

    Attributes:
        since: When the first rank wanted it.
        names: The names that the ranks with a part want for it, None for any.
        slot: Where it goes; None until it begins.
        in_place: Where parts are already according to the reports of their ranks.
        placed: Where the user's own code has put the parts, by rank.
        validations: The settings of the ranks that want it validated.
        metrics: Those of the lowest rank; set once it is settled.
        error: Why it is given up, None if it is not.
    """

    index: int
    since: float
    names: dict[int, str | None] = field(default_factory=dict)
    slot: Slot | None = None
    parts: dict[int, Part] = field(default_factory=dict)
    in_place: dict[int, str] = field(default_factory=dict)
    placed: dict[int, str] = field(default_factory=dict)
    resending: set[int] = field(default_factory=set)
    was_asked_again: bool = False
    validations: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    @property
    def savers(self) -> set[int]:
        """The ranks that have a part."""
        return set(self.names)

    @property
    def name(self) -> str | None:
        """The name that the lowest rank with a part wants for it, None for any."""
        lowest = min(self.names)
        return self.in_place.get(lowest, self.names[lowest])

    @property
    def is_shared(self) -> bool:
        """Whether some ranks deliver parts into the folder where others have put theirs."""
        places = set(self.in_place.values())
        return self.savers > self.in_place.keys() and places == {self.name}

    @property
    def validation(self) -> Mapping[str, Any] | None:
        """The settings for its validation, None for no validation; the lowest rank's count."""
        return self.validations[min(self.validations)] if self.validations else None


class Gathering:
    """The reports of one group."""

    def __init__(self, ranks: Iterable[int], reports_before: int = 0) -> None:
        self._not_returned = set(ranks)  # those that failed too: checkpoints wait for their part
        self.counts = dict.fromkeys(self._not_returned, reports_before)
        self._metrics: dict[int, dict[int, Mapping[str, Any]]] = {}
        self._open: dict[int, Gathered] = {}
        self._refused: dict[int, str] = {}
        self._complete = reports_before
        self._agreement = RankAgreement(self._not_returned)
        self._given_up: tuple[int, str] | None = None  # from which count on, and why

    # ------------------------------------------------------------------ messages of ranks

    def reported(
        self,
        rank: int,
        index: int,
        metrics: Mapping[str, Any],
        *,
        saves: bool = False,
        line: str = "",
    ) -> None:
        """Add a report of a rank, made at a line of user code; its count rises by one."""
        self._agreement.reported(rank, index, metrics, saves=saves, line=line)
        self.counts[rank] = index
        self._metrics.setdefault(index, {})[rank] = metrics

    def wants(
        self, rank: int, index: int, name: str | None, now: float, placed: str | None = None
    ) -> Gathered | None:
        """Note that a rank has a part of the checkpoint of this count; None if it is refused.

        `placed` is where the part is already, None if it is to be delivered.
        """
        if self.refusal(index) is not None:
            return None
        gathered = self._open.setdefault(index, Gathered(index, now))
        gathered.names[rank] = name
        if placed is not None:
            gathered.in_place[rank] = placed
        return gathered

    def delivered(self, index: int, part: Part) -> None:
        """Add the part of a rank."""
        if index in self._open:
            self._open[index].parts[part.rank] = part

    def placed(self, index: int, rank: int, directory: str) -> None:
        """Note where the user's own code has put the part of a rank."""
        if index in self._open:
            self._open[index].parts[rank] = Part(rank, ())
            self._open[index].placed[rank] = directory

    def resent(self, index: int, rank: int) -> None:
        """Note that a rank has sent its files again."""
        if index in self._open:
            self._open[index].resending.discard(rank)

    def failed(self, index: int, error: str) -> None:
        """Note why there will be no checkpoint of this count."""
        if index in self._open:
            self._open[index].error = error

    def returned(self, rank: int) -> None:
        """Note that the function of a rank has returned: it adds nothing more."""
        self._not_returned.discard(rank)
        self._agreement.returned(rank)

    # ------------------------------------------------------------------ checkpoints

    def refusal(self, index: int) -> str | None:
        """Return why there will be no checkpoint of this count, None if there may be."""
        if self._given_up is not None and index >= self._given_up[0]:
            return self._given_up[1]
        return self._refused.get(index)

    def disagreement(self) -> tuple[int, str] | None:
        """Return the first count at which ranks are not in step, and how; None if they are."""
        for index in sorted(self._open):
            if (why := self._agreement.disagreement(index)) is not None:
                return index, why
        return None

    def give_up(self, index: int, why: str) -> list[Gathered]:
        """Refuse the checkpoints of this count and all later ones; return those in the making."""
        self._given_up = index, why
        return [self._open.pop(later) for later in sorted(self._open) if later >= index]

    def is_pending(self, index: int) -> bool:
        """Whether a checkpoint of this count or an earlier one is still being made."""
        return any(open_index <= index for open_index in self._open)

    def behind(self, index: int) -> set[int]:
        """Return the ranks that have neither made this report nor returned."""
        return {rank for rank in self._not_returned if self.counts[rank] < index}

    def to_begin(self) -> list[Gathered]:
        """Return the checkpoints that can begin now, in order.

        None begins before those of lower counts: each gets its number when it begins, and of two
        checkpoints the one with the higher number counts as the newer one.
        """
        waiting = (self._open[index] for index in sorted(self._open))
        not_begun = (gathered for gathered in waiting if gathered.slot is None)
        return list(takewhile(self._is_named, not_begun))

    def _is_named(self, gathered: Gathered) -> bool:
        """Whether no rank that has yet to report can change where the checkpoint goes."""
        behind = self.behind(gathered.index)
        return not behind or (gathered.name is None and min(gathered.savers) < min(behind))

    def waiting(self) -> list[Gathered]:
        """Return all checkpoints in the making."""
        return list(self._open.values())

    def missing(self, index: int) -> list[int]:
        """Return the ranks that a checkpoint still waits for."""
        gathered = self._open[index]
        late = self.behind(index)
        return sorted(late | (gathered.savers - gathered.parts.keys()) | gathered.resending)

    def take_settled(self) -> list[Gathered]:
        """Remove and return the checkpoints that can be committed now, or have failed, in order.

        After `reopen` one is returned again.
        """
        settled = []
        for index in sorted(self._open):
            gathered = self._open[index]
            if gathered.error is None and (gathered.slot is None or self.missing(index)):
                break
            if gathered.error is not None:
                self._refused[index] = gathered.error
            gathered.metrics = self.metrics_of(index)
            settled.append(self._open.pop(index))
        return settled

    def reopen(self, gathered: Gathered, resending: Iterable[int]) -> None:
        """Wait for some ranks to send their files again."""
        gathered.resending = set(resending)
        self._open[gathered.index] = gathered

    def metrics_of(self, index: int) -> Mapping[str, Any]:
        """Return the metrics of the lowest rank that made this report."""
        by_rank = self._metrics.get(index, {})
        return by_rank[min(by_rank)] if by_rank else {}

    def ahead(self, rank: int) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the reports of a rank that not all ranks had made, in order."""
        return [
            (i, self._metrics[i][rank]) for i in sorted(self._metrics) if rank in self._metrics[i]
        ]

    def take_complete(self) -> list[tuple[int, Mapping[int, Mapping[str, Any]]]]:
        """Return the reports that all ranks that have not returned have made, in order, once."""
        if self._not_returned:
            count = min(self.counts[rank] for rank in self._not_returned)
        else:
            count = max(self.counts.values(), default=0)
        until = min([count, *(index - 1 for index in self._open)])
        complete: list[tuple[int, Mapping[int, Mapping[str, Any]]]]
        complete = [(i, self._metrics.get(i, {})) for i in range(self._complete + 1, until + 1)]
        self._complete = max(self._complete, until)
        for index in [index for index in self._metrics if index <= self._complete]:
            del self._metrics[index]
        for index in [index for index in self._refused if index <= self._complete]:
            del self._refused[index]
        self._agreement.forget(self._complete)
        return complete
