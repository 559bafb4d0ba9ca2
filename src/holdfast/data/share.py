"""A rank's share of a dataset's rows: how many rows go round, what is refused and what is logged.

Rows that no rank gets, or that a loop leaves unread, are never left out without a word; a rank
that would get no row at all is an error.
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
    """Which of `world_size` shares of a dataset this is.

    Attributes:
        length: How many rows the dataset has; None if only reading them tells.
        equal: Whether every rank has equally many, and the remainder is nobody's.
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
            self.must_go_round(self.length)

    @property
    def dataset(self) -> str:
        """What messages call the dataset."""
        return "the dataset" if self.name is None else f"dataset {self.name!r}"

    def must_go_round(self, rows: int) -> None:
        """Raise if some rank has no row in an epoch; one rank alone may have none."""
        if rows < self.world_size > 1:
            raise ConfigError(
                f"{self.dataset} has {rows} rows for {self.world_size} ranks: each needs one at"
                " least",
                hint=_FEWER_RANKS,
            )

    def must_have_rows(self, rows: int) -> None:
        """Raise if this rank has come through an epoch without a row."""
        if rows == 0 and self.world_size > 1:
            raise ConfigError(
                f"{self.dataset} has no row for rank {self.rank} of {self.world_size}: each needs"
                " one at least",
                hint=_FEWER_RANKS,
            )

    def log_remainder(self, epoch: int, start: int, rows: int) -> None:
        """Log which of the rows from `start` on no rank gets: once, and again after a resume."""
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
            f" {self.world_size} ranks have equally many; with equal=False (in DataConfig, or in"
            " streaming_split) they are dealt out too",
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
        """Log something that is so for every rank, by one of them, and not again."""
        if self.rank == 0 and kind not in self._logged:  # one rank does it for all
            self._logged.add(kind)
            log.warning(text)
