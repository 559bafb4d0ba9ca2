"""Reports of several ranks, and the checkpoints that come of them: pure bookkeeping of a group.

The reports of a rank are counted. A checkpoint belongs to a count; it is ready when every rank that
still runs has made its report of that count, and those who said they save have delivered. A rank
that has returned adds nothing. Checkpoints become ready in the order of their counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.commit import Slot
from holdfast.core.manifest import Part


@dataclass(slots=True)
class Gathered:
    """A checkpoint in the making.

    Attributes:
        savers: The ranks that said they have a part.
        metrics: Those of the lowest rank; known once it is settled.
        error: Why it will not be, if it will not.
    """

    index: int
    slot: Slot
    savers: set[int] = field(default_factory=set)
    parts: dict[int, Part] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class Gathering:
    """The reports of one group."""

    def __init__(self, ranks: Iterable[int], reports_before: int = 0) -> None:
        self._running = set(ranks)
        self._counts = dict.fromkeys(self._running, reports_before)
        self._metrics: dict[int, dict[int, Mapping[str, Any]]] = {}
        self._open: dict[int, Gathered] = {}
        self._refused: dict[int, str] = {}

    def is_open(self, index: int) -> bool:
        """Whether a checkpoint of this count is being made already."""
        return index in self._open

    def begin(self, index: int, slot: Slot) -> None:
        """A number was given out for the checkpoint of this count."""
        self._open[index] = Gathered(index, slot)

    def refuse(self, index: int, error: str) -> None:
        """There will be no checkpoint of this count, not even of the ranks that come later."""
        self._refused[index] = error

    def refusal(self, index: int) -> str | None:
        """Return why there will be no checkpoint of this count, None if there may be."""
        return self._refused.get(index)

    def slot(self, index: int) -> Slot:
        """Return where the checkpoint of this count goes."""
        return self._open[index].slot

    def reported(self, rank: int, index: int, metrics: Mapping[str, Any], *, saves: bool) -> None:
        """Take in a rank's report; its counts rise by one."""
        self._counts[rank] = index
        self._metrics.setdefault(index, {})[rank] = metrics
        if saves:
            self._open[index].savers.add(rank)

    def delivered(self, index: int, part: Part) -> None:
        """Take in a rank's part."""
        if index in self._open:
            self._open[index].parts[part.rank] = part

    def failed(self, index: int, error: str) -> None:
        """A rank could not save, so the checkpoint of this count will not be."""
        if index in self._open:
            self._open[index].error = error

    def returned(self, rank: int) -> None:
        """A rank's function is done; nothing waits for it any more."""
        self._running.discard(rank)

    def _metrics_of(self, index: int) -> Mapping[str, Any]:
        found = self._metrics.get(index, {})
        return found[min(found)] if found else {}

    def missing(self, index: int) -> list[int]:
        """Return the ranks that a checkpoint still waits for."""
        gathered = self._open[index]
        late = {rank for rank in self._running if self._counts[rank] < index}
        return sorted(late | (gathered.savers - gathered.parts.keys()))

    def take_settled(self) -> list[Gathered]:
        """Return the checkpoints that can be committed now, or have failed, in order."""
        settled = []
        for index in sorted(self._open):
            gathered = self._open[index]
            if gathered.error is None and self.missing(index):
                break
            if gathered.error is not None:
                self.refuse(index, gathered.error)
            gathered.metrics = self._metrics_of(index)
            settled.append(self._open.pop(index))
        self._forget_old()
        return settled

    def _forget_old(self) -> None:
        oldest = min((self._counts[rank] for rank in self._running), default=0)
        oldest = min([oldest, *self._open])
        for index in [index for index in self._metrics if index < oldest]:
            del self._metrics[index]
        for index in [index for index in self._refused if index < oldest]:
            del self._refused[index]
