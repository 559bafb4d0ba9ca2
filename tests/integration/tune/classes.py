"""Trainables of `tune.run`'s era for these tests; they run inside trials, or as a script.

What a trial sees, it notes in the file `config["notes"]`. Beside it, tests leave files that say
what is to happen: see `Counter`.

    python -m tests.integration.tune.classes NOTES '{"name": "study", "resume": true}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from holdfast import tune
from holdfast.control.study import journal as study_journal
from tests.integration.train.loops import die, is_first, note
from tests.patience import pause

GATE = "gate"


class Counter(tune.Trainable):
    """Counts its steps, with the methods of 0.7.

    In the config: at `waits_at` it waits for the file `gate`, if its id ends with `waiting`; at
    `fails_at` it raises, as long as there is no file `fixed`, if `x` is `failing`; both mean every
    trial if they are missing. At `dies_at` it is killed, as often as `deaths` says; at the steps
    `saves_at` it asks to be saved.
    """

    def _setup(self, config: dict[str, Any]) -> None:
        self.notes = Path(config["notes"])
        self.count = 0
        self._note("setup", x=config.get("x"))

    def _note(self, what: str, **facts: Any) -> None:
        note(self.notes, what=what, trial=self.trial_id, count=self.count, **facts)

    def _train(self) -> dict[str, Any]:
        config, self.count = self.config, self.count + 1
        beside = self.notes.with_name
        is_meant = config.get("failing") in (None, config.get("x"))
        if self.count == config.get("fails_at") and is_meant and not beside("fixed").exists():
            raise ValueError(f"trial {config.get('x')} fails at {self.count}")
        is_meant = self.trial_id.endswith(config.get("waiting", ""))
        if self.count == config.get("waits_at") and is_meant and not beside(GATE).exists():
            self._note("waits")
            while not beside(GATE).exists():
                pause()
        if self.count == config.get("dies_at"):
            for death in range(config.get("deaths", 1)):
                if is_first(beside(f"death {death} of {self.trial_id}")):
                    die("SIGKILL")
        self._note("step", pid=os.getpid())
        result = {"count": self.count, "score": config.get("x", 0) * self.count}
        if self.count in config.get("saves_at", ()):
            result[tune.result.SHOULD_CHECKPOINT] = True
        return result

    def _save(self, checkpoint_dir: str) -> str:
        self._note("save", folder=checkpoint_dir, is_local=os.path.isdir(checkpoint_dir))
        path = Path(checkpoint_dir, "count")
        path.write_text(str(self.count))
        return str(path)

    def _restore(self, path: str) -> None:
        self.count = int(Path(path).read_text())
        self._note("restore")


def main() -> None:
    """Run a study of `Counter` as a script would, with arguments in JSON."""
    notes, arguments = sys.argv[1], json.loads(sys.argv[2])
    warnings.simplefilter("ignore", DeprecationWarning)
    config = {"notes": notes, **arguments.pop("config", {})}
    if "xs" in config:
        config["x"] = tune.grid_search(config.pop("xs"))
    if config.pop("draws", False):
        config["x"] = tune.uniform(1, 2)
    if arguments.pop("lingers", False):
        study_journal.LINGER_S = 3600.0  # what nobody waits for is not durable before that
    given: dict[str, Any] = {"stop": {"training_iteration": 6}, "config": config}
    if "asha" in arguments:
        given["scheduler"] = tune.schedulers.ASHAScheduler(**arguments.pop("asha"))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a test runner ignores it
    analysis = tune.run(Counter, **{**given, **arguments})
    sys.stdout.write(json.dumps([[one.config.get("x"), one.status] for one in analysis.trials]))


if __name__ == "__main__":
    main()
