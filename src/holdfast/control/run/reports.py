"""Reports of several ranks, and the checkpoints that come of them: pure bookkeeping of a group.

The reports of a rank are counted. A checkpoint belongs to a count. The lowest rank that has a part
names it, so it is begun when all lower ones have made their report of that count. If its folder has
a name of the user's own, some rank may have put its part there already: then it is begun when every
rank has said so, or not. It is ready when every rank
that still runs has made that report, and those who said they save have delivered. A rank that has
returned adds nothing. Checkpoints become ready in the order of their counts. Where ranks turn out
not to be in step (`core.rank_agreement`), none of that count or a later one will be.
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
        names: What the ranks that have a part want it to be called, None if they do not care.
        slot: Where it goes; None until it is begun.
        in_place: Where ranks said, with their report, that their part is already.
        placed: Where the user's own code has put the parts, by rank.
        validations: How the ranks that want it validated say to do that.
        metrics: Those of the lowest rank; known once it is settled.
        error: Why it will not be, if it will not.
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
        """The ranks that said they have a part."""
        return set(self.names)

    @property
    def name(self) -> str | None:
        """What the lowest rank that has a part wants it to be called, None if it does not care."""
        lowest = min(self.names)
        return self.in_place.get(lowest, self.names[lowest])

    @property
    def is_shared(self) -> bool:
        """Whether some ranks bring parts, and others have put theirs where those belong."""
        places = set(self.in_place.values())
        return self.savers > self.in_place.keys() and places == {self.name}

    @property
    def validation(self) -> Mapping[str, Any] | None:
        """How it is to be validated, None for not at all: the lowest rank that says so counts."""
        return self.validations[min(self.validations)] if self.validations else None


class Gathering:
    """The reports of one group."""

    def __init__(self, ranks: Iterable[int], reports_before: int = 0) -> None:
        self._running = set(ranks)
        self.counts = dict.fromkeys(self._running, reports_before)
        self._metrics: dict[int, dict[int, Mapping[str, Any]]] = {}
        self._open: dict[int, Gathered] = {}
        self._refused: dict[int, str] = {}
        self._complete = reports_before
        self._agreement = RankAgreement(self._running)
        self._given_up: tuple[int, str] | None = None  # from which count on, and why

    # ------------------------------------------------------------------ what ranks say

    def reported(
        self,
        rank: int,
        index: int,
        metrics: Mapping[str, Any],
        *,
        saves: bool = False,
        line: str = "",
    ) -> None:
        """Take in a rank's report, made at a line of user code; its count rises by one."""
        self._agreement.reported(rank, index, metrics, saves=saves, line=line)
        self.counts[rank] = index
        self._metrics.setdefault(index, {})[rank] = metrics

    def wants(
        self, rank: int, index: int, name: str | None, now: float, placed: str | None = None
    ) -> Gathered | None:
        """Note that a rank has a part of the checkpoint of this count; None if it is refused.

        `placed` is where the part is already, None if it is not.
        """
        if self.refusal(index) is not None:
            return None
        gathered = self._open.setdefault(index, Gathered(index, now))
        gathered.names[rank] = name
        if placed is not None:
            gathered.in_place[rank] = placed
        return gathered

    def delivered(self, index: int, part: Part) -> None:
        """Take in a rank's part."""
        if index in self._open:
            self._open[index].parts[part.rank] = part

    def placed(self, index: int, rank: int, directory: str) -> None:
        """Take in where a user's own code has put a rank's part."""
        if index in self._open:
            self._open[index].parts[rank] = Part(rank, ())
            self._open[index].placed[rank] = directory

    def resent(self, index: int, rank: int) -> None:
        """A rank has sent again what was asked of it."""
        if index in self._open:
            self._open[index].resending.discard(rank)

    def failed(self, index: int, error: str) -> None:
        """Take in that there will be no checkpoint of this count."""
        if index in self._open:
            self._open[index].error = error

    def returned(self, rank: int) -> None:
        """Take in that a rank has nothing to add any more, ever."""
        self._running.discard(rank)
        self._agreement.returned(rank)

    # ------------------------------------------------------------------ what follows

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
        return any(one <= index for one in self._open)

    def behind(self, index: int) -> set[int]:
        """Return the ranks that run and have not made this report yet."""
        return {rank for rank in self._running if self.counts[rank] < index}

    def to_begin(self) -> list[Gathered]:
        """Return the checkpoints that wait to be begun and can be, in order.

        None is begun before those of lower counts: numbers are given out as they are begun, and of
        two checkpoints the one with the higher number is taken for the newer one.
        """
        waiting = (self._open[index] for index in sorted(self._open))
        not_begun = (gathered for gathered in waiting if gathered.slot is None)
        return list(takewhile(self._is_named, not_begun))

    def _is_named(self, gathered: Gathered) -> bool:
        """Whether no rank that is still to report can change where the checkpoint goes."""
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
        """Return the checkpoints that can be committed now, or have failed, in order.

        One that some ranks must resend is returned again when they have.
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
        found = self._metrics.get(index, {})
        return found[min(found)] if found else {}

    def ahead(self, rank: int) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the reports of a rank that not all ranks had made, in order."""
        return [
            (i, self._metrics[i][rank]) for i in sorted(self._metrics) if rank in self._metrics[i]
        ]

    def take_complete(self) -> list[tuple[int, Mapping[int, Mapping[str, Any]]]]:
        """Return the reports that all running ranks have made, in order, each once."""
        if self._running:
            made = min(self.counts[rank] for rank in self._running)
        else:
            made = max(self.counts.values(), default=0)
        until = min([made, *(index - 1 for index in self._open)])
        found: list[tuple[int, Mapping[int, Mapping[str, Any]]]]
        found = [(i, self._metrics.get(i, {})) for i in range(self._complete + 1, until + 1)]
        self._complete = max(self._complete, until)
        for index in [index for index in self._metrics if index <= self._complete]:
            del self._metrics[index]
        for index in [index for index in self._refused if index <= self._complete]:
            del self._refused[index]
        self._agreement.forget(self._complete)
        return found
