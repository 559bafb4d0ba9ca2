"""A training script that saves when it is told that its machine goes away, always, or never.

python -m tests.integration.train.preempted_script STORAGE_PATH NOTES SAVES
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast import train
from holdfast.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig
from tests.integration.train.loops import begin, note, save


def loop(config: dict[str, str]) -> None:
    """Train until there is a file that says it is enough."""
    notes, saves = Path(config["notes"]), config["saves"]
    enough = notes.with_name("enough")
    step = begin(notes)
    while not train.collective.broadcast_from_rank_zero(enough.exists()):
        is_told = saves == "when told" and train.get_preemption_info() is not None
        if is_told or saves == "always":
            save(step)
        else:
            train.report({"step": step})
        note(notes, what="step", step=step)
        step += 1
    save(step)


def main() -> None:
    storage_path, notes, saves = sys.argv[1:]
    DataParallelTrainer(
        loop,
        train_loop_config={"notes": notes, "saves": saves},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(
            storage_path=storage_path,
            name="run",
            failure_config=FailureConfig(preemption_notice_s=1.0 if saves == "never" else 300.0),
        ),
    ).fit()


if __name__ == "__main__":
    main()
