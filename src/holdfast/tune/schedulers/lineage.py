"""Where the weights of a trial come from: all steps from one trial to another that led to them.

A step is one line of JSON: the tag of the trial that was changed, the tag of the one it was made
from, the iterations of both, the config it was made from, the new one, and the step's number. A
policy file holds all steps that led to its trial, and perhaps more: its last step goes on from the
last one of its donor before it, and so on. So a line that is written again does no harm.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.core.checkpoint.retention import score_of
from holdfast.core.config_data import config_from_data, config_to_data
from holdfast.core.names import shown
from holdfast.core.plain_data import same
from holdfast.core.study.trial import Trial
from holdfast.errors import ConfigError

GLOBAL_FILE = "pbt_global.txt"


@dataclass(frozen=True)
class Step:
    """A change of config on the way to a trial's weights: from the iteration `after` on."""

    after: int
    before: dict[str, Any]
    config: dict[str, Any]


class Lineage:
    """The steps that led to each trial, and what of them is still to be written to files.

    Histories have their beginnings in common, so each step is kept once, with the one before it.
    """

    def __init__(self) -> None:
        self._made = 0
        self._steps: dict[int, tuple[int | None, str]] = {}
        self._newest: dict[str, int] = {}
        self._unwritten: dict[str, str] = {}

    def add(self, trial_id: str, donor_id: str, step: list[Any], *, is_written: bool) -> None:
        """Remember that a trial was made from another; its own past is of no meaning any more."""
        *told, before, config = step
        told += [_as_data(before), _as_data(config), self._made]
        line = json.dumps(told, default=repr, skipkeys=True)
        self._steps[self._made] = (self._newest.get(donor_id), line)
        self._newest[trial_id] = self._made
        self._made += 1
        if is_written:
            self._append(GLOBAL_FILE, f"{line}\n")
            history = "".join(f"{past}\n" for past in self.history(trial_id))
            self._append(f"pbt_policy_{trial_id}.txt", history)
        self._prune()

    def history(self, trial_id: str) -> list[str]:
        """Return the steps that led to a trial, the first one first."""
        found: list[str] = []
        place = self._newest.get(trial_id)
        while place is not None:
            place, line = self._steps[place]
            found.append(line)
        return found[::-1]

    def forget(self, trial_id: str) -> None:
        """Drop what led to this trial and to no other."""
        if self._newest.pop(trial_id, None) is not None:
            self._prune()

    def take_files(self) -> dict[str, str]:
        """Return what is to be appended to files, by name; each text only once."""
        taken, self._unwritten = self._unwritten, {}
        return taken

    def to_data(self) -> dict[str, Any]:
        steps = [[place, before, line] for place, (before, line) in self._steps.items()]
        return {
            "made": self._made,
            "steps": steps,
            "newest": dict(self._newest),
            "unwritten": dict(self._unwritten),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Lineage:
        found = cls()
        found._made = data["made"]
        found._steps = {place: (before, line) for place, before, line in data["steps"]}
        found._newest = dict(data["newest"])
        found._unwritten = dict(data["unwritten"])
        return found

    def _append(self, name: str, text: str) -> None:
        self._unwritten[name] = self._unwritten.get(name, "") + text

    def _prune(self) -> None:
        reached: set[int] = set()
        for newest in self._newest.values():
            place: int | None = newest
            while place is not None and place not in reached:
                reached.add(place)
                place = self._steps[place][0]
        self._steps = {place: step for place, step in self._steps.items() if place in reached}


def _as_data(config: dict[str, Any]) -> Any:
    """Return a config as it comes back exactly; one that cannot, as it is."""
    try:
        return config_to_data(config)
    except ConfigError:
        return config


def saved_iteration(trial: Trial) -> int:
    """Return the iteration of a trial's newest checkpoint, 0 if it has none."""
    for kept in trial.checkpoints.usable():
        return iteration_in(kept.metrics, kept.step or 0)
    return 0


def iteration_in(result: Mapping[str, Any], otherwise: int) -> int:
    """Return the iteration that a result is of, or something else if it does not tell."""
    iteration = score_of(result, "training_iteration")
    return otherwise if iteration is None or not math.isfinite(iteration) else int(iteration)


def read_policy(path: str | Path) -> list[Step]:
    """Return the steps that led to a trial, the first one first.

    Raises:
        ConfigError: There is no such file, it is not one of these, or its steps do not go on from
            each other.
    """
    hint = "pass the path of a pbt_policy_<trial id>.txt in the folder of a study"
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"policy_file={str(path)!r} cannot be read: {error}", hint=hint
        ) from error
    found: dict[int, list[Any]] = {}
    for place, line in enumerate(text.splitlines()):
        try:
            tag, donor, _, after, before, config, *numbers = json.loads(line)
            before, config = config_from_data(before), config_from_data(config)
            _check_step(after, before, config)
            found[int(numbers[0]) if numbers else place] = [tag, donor, int(after), before, config]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"policy_file={str(path)!r} has a line that is no step of a policy: {line[:80]!r}",
                hint=hint,
            ) from error
    if not found:
        raise ConfigError(f"policy_file={str(path)!r} is empty: no trial was changed", hint=hint)
    chain = _chain([found[number] for number in sorted(found)])
    if problem := _gap_in(chain):
        raise ConfigError(
            f"policy_file={str(path)!r} is not the way to one trial: {problem}",
            hint="pass a file as one study wrote it; files of two studies must not be joined",
        )
    return chain


def _check_step(after: Any, before: Any, config: Any) -> None:
    if after != int(after) or after < 0:
        raise ValueError(f"{after!r} is no iteration")
    if not (isinstance(before, dict) and isinstance(config, dict)):
        raise ValueError("a config is a dict")


def _gap_in(chain: list[Step]) -> str:
    """Return where a step does not go on from the one before it, "" if all do."""
    for earlier, later in itertools.pairwise(chain):
        if later.after < earlier.after:
            return f"a change at iteration {later.after} follows one at {earlier.after}"
        if names := _differences(earlier.config, later.before):
            return (
                f"what is changed at iteration {later.after} is not the config that was there since"
                f" {earlier.after}: {', '.join(names)}"
            )
    return ""


def _differences(one: Mapping[Any, Any], other: Mapping[Any, Any]) -> list[str]:
    """Return the keys that differ; objects are known by a text of theirs that may change."""
    return [
        f"{key!r} is {shown(other.get(key))}, not {shown(one.get(key))}"
        for key in {**one, **other}
        if not same(one.get(key), other.get(key)) and not _is_told_as_text(one.get(key))
    ]


def _is_told_as_text(value: object) -> bool:
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def _chain(steps: list[list[Any]]) -> list[Step]:
    """Return the last step and those it goes back to; each before the one that goes back to it."""
    chain: list[Step] = []
    wanted = steps[-1][0]
    for tag, donor, after, before, config in reversed(steps):
        if tag == wanted:
            chain.append(Step(after, before, config))
            wanted = donor
    return chain[::-1]
