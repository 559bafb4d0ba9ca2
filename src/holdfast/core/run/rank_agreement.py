"""Checks that the ranks of a group report in step; pure bookkeeping, no clock, no store.

The n-th reports of all ranks belong together, and a checkpoint is made of them. The files of a rank
do not show which step they are of, so ranks that are out of step are recognised by what they do:

* *silent*: a rank that has saved before makes its n-th report without a checkpoint, others save;
* *gone*: a rank that has saved before has returned, and others save at a report it never made;
* *late*: a rank saves for the first time, after others have saved without it, and from a line of
  code from which another rank that saves now has reported more often, or less.

Ranks that never save, and reports without a checkpoint, always agree: their number says nothing
about a checkpoint. Counts begin anew with every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.log_lines import ranks_text

# Common names of metrics that count steps, the most useful to show first.
_STEP_METRICS = ("epoch", "step", "global_step", "iteration", "training_iteration", "batch")
_STEP_METRICS_SHOWN = 2


@dataclass(frozen=True, slots=True)
class RankReport:
    """One report of a rank.

    Attributes:
        line: The line of user code that reported, as `/lab/train.py:31`; empty if unknown.
        visits: How often the rank has reported from there in this attempt, this time included.
        place: How far training is according to the metrics, as `epoch=3`; empty if they do not say.
    """

    index: int
    saves: bool
    line: str
    visits: int
    place: str

    def shown(self) -> str:
        """Return where the report was made, for people: `train.py:31, epoch=3`."""
        return ", ".join(filter(None, [self.line.rpartition("/")[2], self.place]))


class RankAgreement:
    """Compares the reports of the ranks of one group."""

    def __init__(self, ranks: Iterable[int]) -> None:
        self._first_save: dict[int, int] = {}
        self._visits: dict[int, dict[str, int]] = {rank: {} for rank in ranks}
        self._reports: dict[int, dict[int, RankReport]] = {}
        self._last: dict[int, RankReport] = {}
        self._returned: set[int] = set()

    def reported(
        self, rank: int, index: int, metrics: Mapping[str, Any], *, saves: bool, line: str
    ) -> None:
        """Add a report of a rank."""
        visits = self._visits[rank].get(line, 0) + 1
        self._visits[rank][line] = visits
        if saves:
            self._first_save.setdefault(rank, index)
        report = RankReport(index, saves, line, visits, _place_in_training(metrics))
        self._reports.setdefault(index, {})[rank] = self._last[rank] = report

    def returned(self, rank: int) -> None:
        """Note that a rank's function has returned."""
        self._returned.add(rank)

    def forget(self, until: int) -> None:
        """Drop the reports up to this one, which all running ranks have made."""
        for index in [index for index in self._reports if index <= until]:
            del self._reports[index]

    def disagreement(self, index: int) -> str | None:
        """Return why the checkpoint of a report would mix steps; None if nothing says so."""
        reports = self._reports.get(index, {})
        savers = sorted(rank for rank, report in reports.items() if report.saves)
        if not savers:
            return None
        contrast = self._silent(index) or self._gone(index) or self._late(index, savers)
        if contrast is None:
            return None
        late_rank, contrast_line = contrast
        others = [rank for rank in savers if rank != late_rank]
        who = _subject(others, "save", "saves")
        return (
            f"ranks are not in step: the checkpoint of report {index} would mix steps"
            f"\n  {who} ({_shown(reports[others[0]], others)})\n  {contrast_line}"
        )

    def _silent(self, index: int) -> tuple[int | None, str] | None:
        silent = [
            rank
            for rank, report in sorted(self._reports[index].items())
            if not report.saves and self._first_save.get(rank, index) < index
        ]
        if not silent:
            return None
        report = self._reports[index][silent[0]]
        which = f"which saved at report {self._first_save[silent[0]]},"
        clause = _subject(silent, f", {which} do not", f", {which} does not")
        return None, f"{clause} ({_shown(report, silent)})"

    def _gone(self, index: int) -> tuple[int | None, str] | None:
        gone = [
            rank
            for rank in sorted(self._returned & self._first_save.keys())
            if self._last[rank].index < index
        ]
        if not gone:
            return None
        last = self._last[gone[0]]
        which = f"which saved at report {self._first_save[gone[0]]},"
        clause = _subject(gone, f", {which} have", f", {which} has")
        return None, f"{clause} returned after report {last.index} ({_shown(last, gone)})"

    def _late(self, index: int, savers: list[int]) -> tuple[int | None, str] | None:
        if min(self._first_save.values()) == index:
            return None  # no rank has saved before
        reports = self._reports[index]
        for rank in savers:
            if self._first_save[rank] < index or not reports[rank].line:
                continue
            for peer_rank in savers:
                report, peer = reports[rank], reports[peer_rank]
                if peer.line == report.line and peer.visits != report.visits:
                    return rank, (
                        f"rank {rank} saves for the first time ({_shown(report, [rank])}),"
                        f" and has reported from that line {_times(report.visits)};"
                        f" rank {peer_rank} {_times(peer.visits)}"
                    )
        return None


def _place_in_training(metrics: Mapping[str, Any]) -> str:
    counters = [
        f"{name}={metrics[name]:.12g}"
        for name in _STEP_METRICS
        if isinstance(metrics.get(name), int | float)
    ]
    return ", ".join(counters[:_STEP_METRICS_SHOWN])


def _subject(ranks: list[int], plural: str, singular: str) -> str:
    does = plural if len(ranks) > 1 else singular
    return f"{ranks_text(ranks)}{'' if does.startswith(',') else ' '}{does}"


def _shown(report: RankReport, ranks: list[int]) -> str:
    where = report.shown() or "an unknown place"
    return f"rank {ranks[0]} at {where}" if len(ranks) > 1 else where


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
