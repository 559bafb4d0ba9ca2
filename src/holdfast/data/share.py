"""A rank's share of a dataset: checks that each rank has rows, and logs rows that are left out.

Rows that no rank gets, or that a loop leaves unread, are always logged; a rank without any row is
an error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from holdfast.core.names import shown
from holdfast.data.checks import whole
from holdfast.errors import ConfigError

log = logging.getLogger(__name__)

_FEWER_RANKS = (
    "use fewer workers, or give every rank all rows: leave the dataset out of"
    " DataConfig(datasets_to_split=[…])"
)


@dataclass
class Share:
    """The share of `rank` of `world_size` in a dataset.

    Attributes:
        length: The number of rows of the dataset; None if all rows must be read to know it.
        equal: Whether every rank has the same number, so that a remainder is left out.
    """

    length: int | None
    world_size: int
    rank: int
    equal: bool = True
    name: str | None = None
    _logged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.world_size = whole("world_size", self.world_size, "it is how many ranks", at_least=1)
        self.rank = whole("rank", self.rank, "ranks are counted from 0", at_least=0)
        if self.rank >= self.world_size:
            raise ConfigError(f"rank={self.rank}: not less than world_size={self.world_size}")
        if not isinstance(self.equal, bool):
            raise ConfigError(f"equal={shown(self.equal)}: must be True or False")
        if self.length is not None:
            self.must_reach_all_ranks(self.length)

    @property
    def dataset(self) -> str:
        """The dataset, as messages name it."""
        return "the dataset" if self.name is None else f"dataset {self.name!r}"

    def must_reach_all_ranks(self, rows: int) -> None:
        """Raise if a rank has no row in an epoch; a single rank may have none."""
        if rows < self.world_size > 1:
            raise ConfigError(
                f"{self.dataset} has {rows} rows for {self.world_size} ranks: each needs at least"
                " one",
                hint=_FEWER_RANKS,
            )

    def must_have_rows(self, rows: int) -> None:
        """Raise if this rank had no row in a whole epoch."""
        if rows == 0 and self.world_size > 1:
            raise ConfigError(
                f"{self.dataset} has no row for rank {self.rank} of {self.world_size}: each needs"
                " at least one",
                hint=_FEWER_RANKS,
            )

    def log_remainder(self, epoch: int, start: int, rows: int) -> None:
        """Log how many of the rows from `start` on no rank gets: once, and again after a resume."""
        left_out = (rows - start) % self.world_size
        if not (self.equal and left_out):
            return
        if start == 0:
            of, share = f"{rows} rows", "an epoch"
        else:
            of, share = f"the {rows - start} rows that were left of epoch {epoch}", "it"
        self.log_once(
            "remainder" if start == 0 else f"remainder of epoch {epoch}",
            f"{self.dataset}: {left_out} of {of} are in no rank's share of {share}, so that all"
            f" {self.world_size} ranks have the same number; with equal=False (in DataConfig, or in"
            " streaming_split) they are used too",
        )

    def log_leaving(self, epoch: int, position: int) -> None:
        """Log once that a loop was left with rows unread."""
        unread = "rows"
        if self.length is not None:
            left = self.length - position
            left -= left % self.world_size if self.equal else 0
            if left <= 0:
                return
            unread = f"{left} of {self.length} rows"
        self.log_once(
            "leaving",
            f"the loop over {self.dataset} was left with {unread} unread: epoch {epoch} ends there,"
            f" and the next loop is epoch {epoch + 1}",
        )

    def log_once(self, kind: str, text: str) -> None:
        """Log a warning that concerns all ranks once, on rank 0."""
        if self.rank == 0 and kind not in self._logged:
            self._logged.add(kind)
            log.warning(text)
