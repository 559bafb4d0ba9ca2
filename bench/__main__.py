"""Measure Holdfast beside its peers and the limit of the disk: `python -m bench`.

Figures are ratios within one run on one machine; times of two runs are not compared.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import commit, import_time, journal, replay, report, restore, upload
from bench.machine import describe, filesystem
from bench.question import FULL, QUICK, Asking, Setting
from bench.runner import Answer, ask
from bench.summary import Verdict

RESULTS = Path(__file__).parent / "results"
EXIT_MISSED = 1
EXIT_TERMINATED = 128 + signal.SIGTERM
SPACE_NEEDED = 50  # times the size of a checkpoint

QUESTIONS: Mapping[str, Asking] = {
    "commit-many": commit.many_small_files,  # before any files have been deleted
    "commit-one": commit.one_large_file,
    "restore-one": restore.one_large_file,
    "restore-many": restore.many_small_files,
    "upload-one": upload.one_large_file,
    "upload-mixture": upload.large_and_small_files,
    "journal": journal.rate,
    "journal-growth": journal.growth,
    "replay": replay.question,
    "import": import_time.question,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # and leave nothing behind
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder or RESULTS, prefix="scratch-") as scratch:
        tempfile.tempdir = scratch  # servers keep their data on the disk that is measured, too
        setting = Setting(Path(scratch), QUICK if options.quick else FULL)
        _must_suit(setting)
        machine = describe(setting.folder)
        answers = [
            _answer(name, setting, options.rounds) for name in QUESTIONS if options.only in name
        ]
    rows = [row for answer in answers for row in report.rows_of(answer)]
    print(f"\n{report.as_text(rows)}\n")
    written = options.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    written.write_text(report.as_json(answers, machine))
    print(f"all measurements: {written}")
    if options.publish:
        report.publish(options.publish, report.as_markdown(rows, machine))
    verdicts = [answer.verdict(claim) for answer in answers for claim in answer.question.claims]
    return EXIT_MISSED if Verdict.MISSED in verdicts else 0


def _answer(name: str, setting: Setting, rounds: int | None) -> Answer:
    with setting.below(name) as place, QUESTIONS[name](place) as question:
        print(f"{name}: {question.what}", flush=True)
        answer = ask(name, question, rounds or setting.scale.rounds)
    print(f"  {report.sides_of(answer)}", flush=True)
    return answer


def _must_suit(setting: Setting) -> None:
    """Say so if what is measured in this folder would mean nothing, or would not fit."""
    needed = SPACE_NEEDED * setting.scale.saved_bytes
    if shutil.disk_usage(setting.folder).free < needed:
        raise SystemExit(
            f"not enough space: up to {needed / 1e9:.0f} GB are written; name a --folder"
        )
    if filesystem(setting.folder) == "tmpfs":
        print("this folder is in memory: what is said of fsync means nothing", file=sys.stderr)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m bench", description=__doc__, epilog="Exits 1 if a bar is missed."
    )
    parser.add_argument("--quick", action="store_true", help="less data and fewer rounds")
    parser.add_argument("--only", default="", metavar="NAME", help=f"of {', '.join(QUESTIONS)}")
    parser.add_argument("--rounds", type=int, help="measurements per side")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to be measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--publish", type=Path, metavar="PAGE", help="put the table into this page")
    options = parser.parse_args(arguments)
    if options.publish and (options.quick or options.only):
        parser.error("only a whole run is published")
    return options


if __name__ == "__main__":
    sys.exit(main())
