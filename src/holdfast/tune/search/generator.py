"""SearchPlan: proposes the trials of a study, with whatever searcher it has.

After a crash: create it with the same arguments, call `set_state`, then repeat the calls since,
with `recall` for every proposal on record.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holdfast.api.checks import is_whole
from holdfast.api.deprecated import warn_user
from holdfast.core.config_data import config_from_data, config_to_data
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.concurrency_limiter import ConcurrencyLimiter
from holdfast.tune.search.objects import Objects, keys_of
from holdfast.tune.search.plain import merged
from holdfast.tune.search.points import searched_values, tag_of
from holdfast.tune.search.searcher import (
    UNRESOLVED_SEARCH_SPACE,
    Searcher,
    check_metric_and_mode,
)
from holdfast.tune.search.space_searcher import SpaceSearcher
from holdfast.tune.search.stored_space import space_to_data
from holdfast.tune.search.variant_generator import constants, has_search, tree_of
from holdfast.tune.search.wrapping import give_state, innermost, state_of

FINISHED: Literal["FINISHED"] = Searcher.FINISHED


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial to create; `SearchPlan.resolve` replaces the marks in its config by objects.

    Attributes:
        number: Its place in the order in which trials are created, from 0.
        evaluated_params: The searched values, by path.
        experiment_tag: The number and those values, as a short text.
    """

    trial_id: str
    number: int
    config: dict[str, Any]
    evaluated_params: dict[str, Any] = field(default_factory=dict)
    experiment_tag: str = ""

    def to_data(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {
            "trial_id": self.trial_id,
            "number": self.number,
            "config": config_to_data(self.config),
            "evaluated_params": config_to_data(self.evaluated_params),
            "experiment_tag": self.experiment_tag,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Proposal:
        """Return the proposal that `to_data` was called on."""
        return cls(
            data["trial_id"],
            data["number"],
            config_from_data(data["config"]),
            config_from_data(data["evaluated_params"]),
            data["experiment_tag"],
        )


class SearchPlan:
    """The searcher, the search space and the number of samples of a study.

    Args:
        search_alg: The searcher; None goes through grids and draws the rest at random.
        param_space: The domains to search, and constants for every trial.
        num_samples: How many samples there are; -1 is no limit. With grids, each sample is all
            combinations.
        max_concurrent: How many trials run at once; None or 0 is no limit.
        objects: The objects that the marks of a stored `param_space` stand for now.

    Raises:
        ConfigError: The search cannot work, or its state cannot be stored.
    """

    def __init__(
        self,
        search_alg: Searcher | None = None,
        param_space: Mapping[str, Any] | None = None,
        *,
        num_samples: int = 1,
        metric: str | list[str] | None = None,
        mode: str | list[str] | None = None,
        max_concurrent: int | None = None,
        objects: Objects | None = None,
    ) -> None:
        check_metric_and_mode(metric, mode)
        _check_num_samples(num_samples)
        self.space, own_objects = Objects.of(dict(param_space or {}))
        self.objects = own_objects if objects is None else own_objects.joined(objects)
        self._tree = tree_of(self.space)
        self._constants: dict[str, Any] = constants(self._tree)
        self.searcher = _limited(search_alg or BasicVariantGenerator(), max_concurrent)
        self._introduce(metric, mode)
        self._num_samples = int(num_samples)
        _warn_of_unused_points(innermost(self.searcher), self._num_samples)
        self._prefix = secrets.token_hex(3)[:5]
        self._made = 0
        self._is_over = False
        self.lost: list[str] = []  # trials that are missing in a damaged record
        state_of(self.searcher)  # raises now, not after a crash, if it cannot be stored

    @property
    def keys(self) -> list[str]:
        """The paths of all values of the space; see `must_have_same_keys`."""
        return keys_of(self.space)

    @property
    def space_data(self) -> Any:
        """The space as data for JSON; see `space_from_data`."""
        return space_to_data(self.space)

    @property
    def total(self) -> int | None:
        """How many trials there will be, None if that is unknown."""
        return self._made if self._is_over else self.searcher.count_trials(self._num_samples)

    @property
    def made(self) -> int:
        """How many trials there are so far."""
        return self._made

    def next(self) -> Proposal | Literal["FINISHED"] | None:
        """Return a new trial, None if there is none now, FINISHED if there will be none."""
        total = self.total
        if self._is_over or (total is not None and self._made >= total):
            return FINISHED
        trial_id = f"{self._prefix}_{self._made:05d}"
        suggestion = self.searcher.suggest(trial_id)
        if suggestion is None:
            return None
        if isinstance(suggestion, str):
            if suggestion != FINISHED:
                raise ConfigError(
                    f"{type(self.searcher).__name__}.suggest returned {suggestion!r}",
                    hint="return a dict, None or Searcher.FINISHED",
                )
            self._is_over = True
            return FINISHED
        proposal = self._proposal(trial_id, suggestion)
        self._made += 1
        return proposal

    def preview(self) -> Proposal | None:
        """Return the first trial, without creating it, if it does not depend on a searcher."""
        inner = innermost(self.searcher)
        if self._made or not isinstance(inner, BasicVariantGenerator):
            return None
        return self._proposal(f"{self._prefix}_{0:05d}", inner.variant(0))

    def _proposal(self, trial_id: str, suggestion: dict[str, Any]) -> Proposal:
        config = merged(self._constants, suggestion)
        searched = searched_values(self._tree, config)
        config_to_data(config)  # raises now, not after a crash, if it cannot be stored
        return Proposal(trial_id, self._made, config, searched, tag_of(self._made, searched))

    def recall(self, proposal: Proposal | Trial) -> None:
        """Count a proposal that was made before a crash as the next one.

        Earlier proposals that are not on record are added to `lost`.
        """
        self._prefix = proposal.trial_id.rpartition("_")[0]
        while self._made < proposal.number:
            self._skip_lost()
        self.searcher.recall(proposal.trial_id, proposal.config)
        self._made = proposal.number + 1

    def _skip_lost(self) -> None:
        """Make the searcher continue as if a trial that is not on record had failed."""
        trial_id = f"{self._prefix}_{self._made:05d}"
        if isinstance(self.searcher.suggest(trial_id), Mapping):
            self.searcher.on_trial_complete(trial_id, error=True)
        self._made += 1
        self.lost.append(trial_id)

    def recall_end(self) -> None:
        """Note that the searcher had finished before a crash."""
        self._is_over = True

    def on_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Pass a result of a running trial to the searcher."""
        self.searcher.on_trial_result(trial_id, result)

    def on_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, *, error: bool = False
    ) -> None:
        """Tell the searcher that a trial has ended, with its last result if there is one."""
        self.searcher.on_trial_complete(trial_id, result=result, error=error)

    def on_pause(self, trial_id: str) -> None:
        """Tell the searcher that a trial is paused."""
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Tell the searcher that a paused trial continues."""
        self.searcher.on_unpause(trial_id)

    def on_revive(self, trial_id: str) -> None:
        """Tell the searcher that a trial that had ended runs again."""
        self.searcher.on_revive(trial_id)

    def extend(self, num_samples: int) -> None:
        """Take `num_samples` samples in all, not fewer than before; -1 for no limit."""
        _check_num_samples(num_samples)
        if num_samples >= 0 and (self._num_samples < 0 or num_samples < self._num_samples):
            raise ConfigError(
                f"num_samples={num_samples}: less than the {self._num_samples} there are",
                hint="pass the total number, not how many more",
            )
        self._num_samples = num_samples
        self._is_over = False

    def resolve(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a config with objects instead of marks."""
        return self.objects.resolve(config)  # type: ignore[no-any-return]

    def missing(self, config: Any) -> list[str]:
        """Return the paths of objects that are missing until param_space is passed again."""
        return self.objects.missing(config)

    def get_state(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        return {
            "prefix": self._prefix,
            "made": self._made,
            "num_samples": self._num_samples,
            "is_over": self._is_over,
            "searcher": state_of(self.searcher),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore what `get_state` returned."""
        self._prefix, self._made = state["prefix"], state["made"]
        self._num_samples, self._is_over = state["num_samples"], state["is_over"]
        give_state(self.searcher, state["searcher"])

    def _introduce(self, metric: Any, mode: Any) -> None:
        """Pass the search space, the metric and the mode to the searcher."""
        inner = innermost(self.searcher)
        if isinstance(inner, SpaceSearcher | BasicVariantGenerator):
            points = inner.points_to_evaluate
            if isinstance(inner, SpaceSearcher):
                self.objects = self.objects.joined(inner.objects)
                inner.objects = self.objects
            inner.points_to_evaluate = [self.objects.marked(point) for point in points]
        elif metric is None and mode is None and not has_search(self._tree):
            return
        is_accepted = self.searcher.set_search_properties(metric, mode, self.space)
        if not is_accepted and has_search(self._tree):
            raise ConfigError(
                f"{type(inner).__name__}: {UNRESOLVED_SEARCH_SPACE}"
                if isinstance(inner, SpaceSearcher)
                else f"{type(inner).__name__} takes no search space from param_space",
                hint="keep only constants in param_space, or use a searcher without its own space",
            )


def _limited(searcher: Searcher, max_concurrent: int | None) -> Searcher:
    if not isinstance(searcher, Searcher):
        raise ConfigError(
            f"search_alg={searcher!r}: not a searcher",
            hint="pass an instance of a tune.search.Searcher, or create_searcher(name)",
        )
    if isinstance(searcher, BasicVariantGenerator):
        limit = max_concurrent or searcher.max_concurrent
        return ConcurrencyLimiter(searcher, limit) if limit else searcher
    if not max_concurrent:
        return searcher
    if isinstance(searcher, ConcurrencyLimiter):
        if searcher.max_concurrent == max_concurrent:
            return searcher
        raise ConfigError(
            f"max_concurrent_trials={max_concurrent} is not the {searcher.max_concurrent} of the "
            "ConcurrencyLimiter",
            hint="set it in one place",
        )
    return ConcurrencyLimiter(searcher, max_concurrent)


def _warn_of_unused_points(searcher: Searcher, num_samples: int) -> None:
    """Warn if there are more points to evaluate than samples."""
    if not isinstance(searcher, SpaceSearcher | BasicVariantGenerator):
        return
    count = len(searcher.points_to_evaluate)
    are_new = searcher.made_with[1].get("evaluated_rewards") is None  # else they are not tried
    if are_new and 0 <= num_samples < count:
        warn_user(
            f"num_samples={num_samples} and {count} points_to_evaluate: a point takes the place of"
            f" a sample, so only the first {num_samples} are tried; num_samples={count} tries all"
        )


def _check_num_samples(num_samples: Any) -> None:
    if not is_whole(num_samples) or (num_samples < 1 and num_samples != -1):
        raise ConfigError(
            f"num_samples={num_samples!r}: not a whole number above 0, nor -1 for no limit"
        )
