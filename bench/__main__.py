"""Measure Holdfast beside its peers and the limits of the machine: `python -m bench`.

Figures are ratios within one run on one machine; times of two runs are not compared.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import (
    baseline,
    blocked,
    chart,
    commit,
    data_memory,
    goodput,
    import_time,
    journal,
    launch,
    memory,
    publishing,
    record,
    recovery,
    redone,
    replay,
    report,
    report_rate,
    restore,
    tune_classes,
    tune_profile,
    tune_restore,
    tune_scale,
    tune_trials,
    upload,
)
from bench.machine import describe, filesystem
from bench.question import FULL, QUICK, Asking, Setting, remove
from bench.record import Record
from bench.runner import Answer, SideFailed, ask
from bench.summary import Verdict

RESULTS = Path(__file__).parent / "results"
EXIT_MISSED = 1
EXIT_TERMINATED = 128 + signal.SIGTERM
SPACE_NEEDED = 50  # times the size of a checkpoint

QUESTIONS: Mapping[str, Asking] = {
    "launch": launch.into_user_code,
    "launch-step": launch.to_the_first_step,
    "recovery-worker": recovery.of_a_worker,
    "recovery-driver": recovery.of_the_driver,
    "redone": redone.question,
    "goodput": goodput.question,
    "report-metrics": report_rate.of_metrics,
    "memory": memory.question,
    "data-memory": data_memory.question,
    "commit-many": commit.many_small_files,  # before many files have been deleted
    "commit-one": commit.one_large_file,
    "report-checkpoint": report_rate.of_a_checkpoint,
    "blocked-disk": blocked.on_disk,
    "blocked-s3": blocked.on_s3,
    "restore-one": restore.one_large_file,
    "restore-many": restore.many_small_files,
    "upload-one": upload.one_large_file,
    "upload-mixture": upload.large_and_small_files,
    "journal": journal.rate,
    "journal-growth": journal.growth,
    "replay": replay.question,
    "import": import_time.question,
    "tune-trials": tune_trials.question,  # last: they make very many files
    "tune-classes": tune_classes.question,
    "tune-profile": tune_profile.question,
    "tune-restore": tune_restore.question,
    "tune-scale": tune_scale.question,
}
MORE: Mapping[str, Asking] = {  # with --full
    "blocked-disk-1gb": blocked.on_disk_large,
    "blocked-s3-1gb": blocked.on_s3_large,
    "goodput-10min": goodput.for_ten_minutes,
}
NOT_QUICK = frozenset(
    {
        "launch-step",
        "recovery-driver",
        "redone",
        "goodput",
        "blocked-s3",
        "restore-many",
        "upload-one",
        "upload-mixture",
        "tune-profile",
        "tune-scale",
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))  # and leave nothing behind
    if options.results:
        records = [found for path in options.results for found in record.read(path)]
        return _publish(options.publish, records)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has been compiled before
    RESULTS.mkdir(exist_ok=True)
    written = options.json or RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    scratch = Path(tempfile.mkdtemp(dir=options.folder or RESULTS, prefix="scratch-"))
    try:
        tempfile.tempdir = str(scratch)  # servers keep their data on the disk that is measured, too
        asker = _Asker(Setting(scratch, QUICK if options.quick else FULL), written)
        for name, asking in _asked(options).items():
            asker.answer(name, asking, options.rounds)
        _show(asker.records, written)  # first: to remove it all takes a minute or two
    finally:
        remove(scratch)
    if options.publish is not None and _publish(options.publish, asker.records):
        return EXIT_MISSED
    return max(_conclude(options, asker), EXIT_MISSED if asker.failed else 0)


def _show(records: Sequence[Record], written: Path) -> None:
    print(f"\n{report.as_text(records)}\n")
    print(f"all measurements: {written}")
    if chart.groups_of(records):
        picture = written.with_suffix(".svg")
        picture.write_text(chart.as_svg(records))
        print(f"a picture of them: {picture}", flush=True)


class _Asker:
    """Asks one question after the other, and writes down what was found after each."""

    def __init__(self, setting: Setting, written: Path) -> None:
        _must_suit(setting)
        self._setting = setting
        self._written = written
        self.machine = describe(setting.folder)
        self.answers: list[Answer] = []
        self.records: list[Record] = []
        self.failed: list[str] = []

    def answer(self, name: str, asking: Asking, rounds: int | None) -> None:
        """Ask one question; if our own side cannot answer it, say so and go on with the next."""
        scale, begun = self._setting.scale, time.monotonic()
        try:
            has_many_files = name.startswith("tune-")
            with (
                self._setting.below(name, stays=has_many_files) as place,
                asking(place) as question,
            ):
                print(f"{name}: {question.what}", flush=True)
                answer = ask(
                    name,
                    question,
                    rounds or scale.rounds,
                    # What is compared with a baseline, or was asked for, is measured to the end.
                    stops_early=rounds is None and scale.slow_peers,
                )
        except Exception as failure:  # noqa: BLE001  the others are asked all the same
            told = str(failure) if isinstance(failure, SideFailed) else traceback.format_exc()
            print(f"  FAILED: {told}", flush=True)
            self.failed.append(name)
            return
        found = Record.of(
            answer,
            measured=time.strftime("%Y-%m-%d"),
            machine=self.machine,
            is_quick=not scale.slow_peers,
            in_all_s=time.monotonic() - begun,
        )
        self.answers.append(answer)
        self.records.append(found)
        print(f"  {report.sides_of(found)}", flush=True)
        record.write(self._written, self.records)


def _asked(options: argparse.Namespace) -> dict[str, Asking]:
    """Return the questions that are wanted; whoever names one gets it, however quick."""
    known = {**QUESTIONS, **MORE} if options.full else QUESTIONS
    if options.only:
        words = options.only.split(",")
        return {
            name: asking
            for name, asking in {**QUESTIONS, **MORE}.items()
            if any(_means(word, name) for word in words)
        }
    left_out = NOT_QUICK if options.quick else frozenset()
    return {name: asking for name, asking in known.items() if name not in left_out}


def _means(word: str, name: str) -> bool:
    """Say whether a word names a question: whole, if there is one of that name, else in part."""
    return word == name if word in QUESTIONS or word in MORE else word in name


def _conclude(options: argparse.Namespace, asker: _Asker) -> int:
    """Say what has moved, if that was asked; return how the bench ends."""
    answers, worse = asker.answers, False
    if options.compare is not None and not options.compare.exists():
        print(f"there is no baseline to compare with: {options.compare}; --keep makes one")
    elif options.compare is not None:
        moves = baseline.moves(options.compare, answers)
        worse = any(move.is_worse for move in moves)
        print("\n".join(map(str, moves)) or f"nothing has moved since {options.compare.name}")
        if new := baseline.unknown(options.compare, answers):
            print(f"not in {options.compare.name}, so not compared: {', '.join(new)}")
    if options.keep is not None:
        baseline.keep(options.keep, answers, asker.machine)
        print(f"kept as the baseline: {options.keep}")
    verdicts = [answer.verdict(claim) for answer in answers for claim in answer.claims()]
    missed = Verdict.MISSED in verdicts and options.compare is None
    return EXIT_MISSED if worse or missed else 0


def _publish(pages: Sequence[Path] | None, records: Sequence[Record]) -> int:
    order = [*QUESTIONS, *MORE]
    try:
        written = publishing.publish(records, order, pages=pages or publishing.PAGES)
    except ValueError as refused:
        print(f"not published: {refused}", file=sys.stderr)
        return EXIT_MISSED
    print("\n".join(written))
    return 0


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
        "python -m bench",
        description=__doc__,
        epilog="Exits 1 if a bar is missed; with --compare, if something got worse.",
    )
    names = ", ".join([*QUESTIONS, *MORE])
    publishes = "replace what the docs say of these questions; of others it stays"
    parser.add_argument(
        "--quick", action="store_true", help="less data, fewer rounds, no slow peer"
    )
    parser.add_argument("--full", action="store_true", help="more: 1 GB, ten minutes of kills")
    parser.add_argument("--only", default="", metavar="WORD[,WORD]", help=f"of {names}")
    parser.add_argument("--rounds", type=int, help="measurements per side")
    parser.add_argument("--folder", type=Path, help="a folder on the disk to be measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="FILE",
        nargs="?",
        const=baseline.PATH,
        help=f"say what has moved since this baseline was kept (default: {baseline.PATH.name})",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FILE",
        nargs="?",
        const=baseline.PATH,
        help="keep what is found now as the baseline",
    )
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="PAGE",
        nargs="*",
        help=f"{publishes} (pages: docs/performance.md and README.md)",
    )
    parser.add_argument(
        "--results",
        type=Path,
        metavar="FILE",
        nargs="+",
        help="with --publish: take what these files of earlier runs hold, and measure nothing",
    )
    options = parser.parse_args(arguments)
    if not _asked(options):
        parser.error(f"no question has {options.only!r} in its name: {names}")
    if options.publish is not None and options.quick:
        parser.error("only a full run is published: leave out --quick")
    if options.results and options.publish is None:
        parser.error("--results are there to be published: add --publish")
    if (options.compare or options.keep) and not options.quick:
        parser.error("a baseline is of a quick run: add --quick")
    return options


if __name__ == "__main__":
    sys.exit(main())
