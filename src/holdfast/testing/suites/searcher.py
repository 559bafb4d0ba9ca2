"""The conformance suite of `Searcher`.

Subclass `SearcherSuite` and define how to make a searcher, each time with the same arguments:

    class TestMySearcher(SearcherSuite):
        def new(self) -> Searcher:
            return MySearcher(seed=3)

Each test plays studies without processes: trials are proposed, report a loss computed from their
config, and end; some fail, some report nothing that can be compared. The death of a driver is
simulated by a new searcher that gets an earlier state of the old one, through JSON as in a journal.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.tune.search import Proposal, Searcher, SearchPlan
from holdfast.tune.search.domains import Domain
from holdfast.tune.search.sample import choice, loguniform, qrandint, randint, uniform

METRIC = "loss"
AT_ONCE = 3  # trials that run at once


class SearcherSuite:
    """The contract of `holdfast.tune.search.Searcher`, as tests.

    Attributes:
        space: The search space. Override it if the searcher does not support every kind of domain,
            with an empty one if it has its own.
        trials: How many trials a study proposes at most; a searcher may end sooner.
    """

    space: ClassVar[Mapping[str, Any]] = {
        "x": uniform(-2.0, 3.0),
        "rate": loguniform(1e-5, 1.0),
        "layers": {"count": randint(1, 9), "width": qrandint(16, 128, 16)},
        "kind": choice(["wide", "deep", "flat"]),
        "fixed": 7,
    }
    trials = 16

    def new(self) -> Searcher:
        """Return a new searcher, each time with the same arguments."""
        raise NotImplementedError

    # ------------------------------------------------------------------ proposals

    def test_proposals_are_in_the_space(self) -> None:
        proposals = [*filter(None, self._played(self._begun()).proposed)]

        assert proposals, "nothing was ever proposed"
        for proposal in proposals:
            outside = _outside(self.space, proposal.config)
            assert not outside, f"{proposal.trial_id}: {'; '.join(outside)}"

    def test_a_config_that_its_trial_changes_changes_nothing_else(self) -> None:
        """A trial owns its config: what it writes into it must not reach the next proposal."""
        begun = self._begun()
        undisturbed, disturbed = self._played(begun), _Study(self._again(begun))
        for number in range(self.trials):
            proposal = disturbed.step(number)
            if proposal is not None:
                _overwrite(proposal.config)

        assert disturbed.proposed == undisturbed.proposed

    def test_a_finished_search_stays_finished(self) -> None:
        plan = self._played(self._begun()).plan
        if plan.next() == Searcher.FINISHED:
            assert plan.next() == Searcher.FINISHED

    # ------------------------------------------------------------------ results

    def test_results_that_say_nothing_break_nothing(self) -> None:
        plan = self._again(self._begun())
        odd: list[dict[str, Any] | None] = [
            {METRIC: math.nan}, {METRIC: math.inf}, {METRIC: -math.inf}, {METRIC: None},
            {METRIC: "high"}, {}, None,
        ]  # fmt: skip
        for result in odd:
            proposal = plan.next()
            if not isinstance(proposal, Proposal):
                break
            if result is not None:
                plan.on_result(proposal.trial_id, {**result, "training_iteration": 1})
            plan.on_complete(proposal.trial_id, result)
        json.dumps(plan.get_state())

        proposal = plan.next()
        if isinstance(proposal, Proposal):
            assert not _outside(self.space, proposal.config)

    def test_trials_that_fail_are_followed_by_others(self) -> None:
        plan = self._again(self._begun())
        failed = 0
        for _ in range(self.trials):
            proposal = plan.next()
            assert proposal is not None, f"waits for ever after {failed} trials that failed"
            if not isinstance(proposal, Proposal):
                break
            plan.on_complete(proposal.trial_id, error=True)
            failed += 1

        assert failed

    # ------------------------------------------------------------------ crashes

    def test_a_searcher_that_is_made_anew_before_each_call_proposes_the_same(self) -> None:
        begun = self._begun()
        whole, broken = self._played(begun), _Study(self._again(begun))
        for number in range(self.trials):
            broken.plan = self._again(broken.state())
            broken.step(number)

        assert broken.proposed == whole.proposed

    def test_an_earlier_state_and_the_record_since_lead_to_the_same(self) -> None:
        """For any moment of the state, and any later moment at which the driver dies."""
        whole = _Study(self._again(self._begun()))
        states = [whole.state()]
        for number in range(self.trials):
            whole.step(number)
            states.append(whole.state())
        chance = random.Random(5)
        for _ in range(12):
            saved, died = sorted(chance.choices(range(self.trials - 2), k=2))
            again = _Study(self._again(states[saved]))
            again.become(whole, saved)
            for number in range(saved, self.trials):
                again.step(number, recorded=whole if number < died else None)

            assert again.proposed == whole.proposed, f"state of step {saved}, crash in step {died}"

    def test_saved_to_a_file_it_proposes_the_same(self, tmp_path: Any) -> None:
        study = self._played(self._begun(), self.trials // 2)
        study.plan.searcher.save(str(tmp_path / "searcher"))
        again = self._again(study.state())
        again.searcher.restore(str(tmp_path / "searcher"))

        following = _Study(again)
        following.become(study, self.trials // 2)
        for number in range(self.trials // 2, self.trials):
            study.step(number)
            following.step(number)

        assert following.proposed == study.proposed

    # ------------------------------------------------------------------

    def _begun(self) -> str:
        """Return the state of a new search; studies to be compared begin with the same one."""
        return json.dumps(self._plan().get_state())

    def _again(self, state: str) -> SearchPlan:
        plan = self._plan()
        plan.set_state(json.loads(state))
        return plan

    def _plan(self) -> SearchPlan:
        return SearchPlan(self.new(), self.space, num_samples=-1, metric=METRIC, mode="min")

    def _played(self, state: str, steps: int | None = None) -> _Study:
        study = _Study(self._again(state))
        for number in range(self.trials if steps is None else steps):
            study.step(number)
        return study


class _Study:
    """A plan, what it proposed in each step, and which of that has not ended."""

    def __init__(self, plan: SearchPlan) -> None:
        self.plan = plan
        self.proposed: list[Proposal | None] = []
        self.running: list[Proposal] = []

    def state(self) -> str:
        return json.dumps(self.plan.get_state())

    def step(self, number: int, recorded: _Study | None = None) -> Proposal | None:
        """Propose a trial, let one report, and end one if there are many; return the proposal.

        With `recorded`, the proposal is taken from the record of that study.
        """
        if recorded is None:
            answer = self.plan.next()
            proposal = answer if isinstance(answer, Proposal) else None
        elif (proposal := copy.deepcopy(recorded.proposed[number])) is not None:
            self.plan.recall(proposal)
        ended = self._note(copy.deepcopy(proposal))
        if self.running:
            reporting = self.running[number % len(self.running)]
            report = {METRIC: _loss(reporting) + 1.0, "training_iteration": 1 + number}
            self.plan.on_result(reporting.trial_id, report)
        if ended is not None:
            self._end(ended, number)
        return proposal

    def become(self, study: _Study, steps: int) -> None:
        """Copy what was proposed in the first steps of another study, without calling the plan."""
        for proposal in study.proposed[:steps]:
            self._note(proposal)

    def _note(self, proposal: Proposal | None) -> Proposal | None:
        """Note what was proposed, and return the trial that ends in the same step, if one does."""
        self.proposed.append(proposal)
        if proposal is not None:
            self.running.append(proposal)
        if len(self.running) >= AT_ONCE or (proposal is None and self.running):
            return self.running.pop(0)
        return None

    def _end(self, proposal: Proposal, number: int) -> None:
        if number % 5 == 4:
            self.plan.on_complete(proposal.trial_id, error=True)
        else:
            last = {METRIC: _loss(proposal), "training_iteration": 1 + number}
            self.plan.on_complete(proposal.trial_id, last)


def _loss(proposal: Proposal) -> float:
    """Return a loss computed from the numbers in a config."""
    return math.fsum(math.sin(number) for number in _numbers(proposal.config))


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        return [number for key in sorted(value, key=str) for number in _numbers(value[key])]
    return [float(value)] if isinstance(value, int | float) else []


def _outside(space: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return in which ways a config is not in a space."""
    wrong = []
    for name, domain in space.items():
        if name not in config:
            wrong.append(f"{name} is missing")
        elif isinstance(domain, Mapping) and "grid_search" in domain:
            if config[name] not in domain["grid_search"]:
                wrong.append(f"{name}={config[name]!r} is not in the grid")
        elif isinstance(domain, Mapping):
            wrong += [f"{name}/{problem}" for problem in _outside(domain, config[name])]
        elif isinstance(domain, Domain):
            if not domain.is_valid(config[name]):
                wrong.append(f"{name}={config[name]!r} is outside {domain!r}")
        elif config[name] != domain:
            wrong.append(f"{name}={config[name]!r}, and not {domain!r}")
    return wrong


def _overwrite(config: dict[str, Any]) -> None:
    for name, value in list(config.items()):
        if isinstance(value, dict):
            _overwrite(value)
        config[name] = "overwritten"
