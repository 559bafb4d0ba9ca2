"""Records where the weights of a trial come from, and reads the policy files that say so.

A step is one line of JSON: the tag of the trial that was changed, the tag of its donor, the
iterations of both, the donor's config, the new config, and the step's number. A policy file holds
all steps that led to its trial, and perhaps more. It is read backwards: the last step continues the
last earlier step of its donor, and so on, so a line that is written twice does no harm.
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
from holdfast.errors import ConfigError
from holdfast.tune.trial import Trial

GLOBAL_FILE = "pbt_global.txt"


@dataclass(frozen=True)
class Step:
    """A change from the config `before` to `config`, made after the iteration `after`."""

    after: int
    before: dict[str, Any]
    config: dict[str, Any]


class Lineage:
    """The steps that led to each trial, and the text that is still to be written to files.

    Histories share their beginnings, so each step is stored once, with a link to the one before it.
    """

    def __init__(self) -> None:
        self._made = 0
        self._steps: dict[int, tuple[int | None, str]] = {}
        self._newest: dict[str, int] = {}
        self._unwritten: dict[str, str] = {}

    def add(self, trial_id: str, donor_id: str, step: list[Any], *, is_written: bool) -> None:
        """Record that a trial continues from a donor, whose history replaces its own."""
        *tags_and_iterations, before, config = step
        entries = [*tags_and_iterations, _as_data(before), _as_data(config), self._made]
        line = json.dumps(entries, default=repr, skipkeys=True)
        self._steps[self._made] = (self._newest.get(donor_id), line)
        self._newest[trial_id] = self._made
        self._made += 1
        if is_written:
            self._append(GLOBAL_FILE, f"{line}\n")
            history = "".join(f"{past_line}\n" for past_line in self.history(trial_id))
            self._append(f"pbt_policy_{trial_id}.txt", history)
        self._prune()

    def history(self, trial_id: str) -> list[str]:
        """Return the steps that led to a trial, the first one first."""
        lines: list[str] = []
        place = self._newest.get(trial_id)
        while place is not None:
            place, line = self._steps[place]
            lines.append(line)
        return lines[::-1]

    def forget(self, trial_id: str) -> None:
        """Drop the steps that led to this trial alone."""
        if self._newest.pop(trial_id, None) is not None:
            self._prune()

    def take_files(self) -> dict[str, str]:
        """Return the text to append to files, by file name; each text is returned once."""
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
        lineage = cls()
        lineage._made = data["made"]
        lineage._steps = {place: (before, line) for place, before, line in data["steps"]}
        lineage._newest = dict(data["newest"])
        lineage._unwritten = dict(data["unwritten"])
        return lineage

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
    """Return a config as data that is read back exactly, or unchanged where that is impossible."""
    try:
        return config_to_data(config)
    except ConfigError:
        return config


def saved_iteration(trial: Trial) -> int:
    """Return the iteration of a trial's newest checkpoint, 0 if it has none."""
    for checkpoint in trial.checkpoints.usable():
        return iteration_in(checkpoint.metrics, checkpoint.step or 0)
    return 0


def iteration_in(result: Mapping[str, Any], otherwise: int) -> int:
    """Return the `training_iteration` of a result, or `otherwise` if it has none."""
    iteration = score_of(result, "training_iteration")
    return otherwise if iteration is None or not math.isfinite(iteration) else int(iteration)


def read_policy(path: str | Path) -> list[Step]:
    """Return the steps that led to a trial, the first one first.

    Raises:
        ConfigError: The file is missing, is not a policy file, or its steps do not fit together.
    """
    hint = "pass the path of a pbt_policy_<trial id>.txt in the folder of a study"
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, TypeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"policy_file={str(path)!r} cannot be read: {error}", hint=hint
        ) from error
    steps: dict[int, list[Any]] = {}
    for place, line in enumerate(text.splitlines()):
        try:
            tag, donor, _, after, before, config, *numbers = json.loads(line)
            before, config = config_from_data(before), config_from_data(config)
            _check_step(after, before, config)
            steps[int(numbers[0]) if numbers else place] = [tag, donor, int(after), before, config]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"policy_file={str(path)!r} has a line that is not a policy step: {line[:80]!r}",
                hint=hint,
            ) from error
    if not steps:
        raise ConfigError(f"policy_file={str(path)!r} is empty: no trial was changed", hint=hint)
    chain = _chain([steps[number] for number in sorted(steps)])
    if problem := _gap_in(chain):
        raise ConfigError(
            f"policy_file={str(path)!r} is not the history of one trial: {problem}",
            hint="pass a file as one study wrote it; files of two studies must not be joined",
        )
    return chain


def _check_step(after: Any, before: Any, config: Any) -> None:
    if after != int(after) or after < 0:
        raise ValueError(f"{after!r} is not an iteration")
    if not (isinstance(before, dict) and isinstance(config, dict)):
        raise ValueError("a config is a dict")


def _gap_in(chain: list[Step]) -> str:
    """Return why a step does not continue the one before it, "" if all do."""
    for earlier, later in itertools.pairwise(chain):
        if later.after < earlier.after:
            return f"a change at iteration {later.after} follows one at {earlier.after}"
        if names := _differences(earlier.config, later.before):
            return (
                f"the config that is changed at iteration {later.after} is not the one in use since"
                f" {earlier.after}: {', '.join(names)}"
            )
    return ""


def _differences(earlier: Mapping[Any, Any], later: Mapping[Any, Any]) -> list[str]:
    """Return the keys that differ, except for objects that are stored by their `repr`."""
    return [
        f"{key!r} is {shown(later.get(key))}, not {shown(earlier.get(key))}"
        for key in {**earlier, **later}
        if not same(earlier.get(key), later.get(key)) and not _is_repr(earlier.get(key))
    ]


def _is_repr(value: object) -> bool:
    return isinstance(value, str) and value.startswith("<") and value.endswith(">")


def _chain(steps: list[list[Any]]) -> list[Step]:
    """Return the last step and the steps that led to it, the first one first."""
    chain: list[Step] = []
    wanted = steps[-1][0]
    for tag, donor, after, before, config in reversed(steps):
        if tag == wanted:
            chain.append(Step(after, before, config))
            wanted = donor
    return chain[::-1]
