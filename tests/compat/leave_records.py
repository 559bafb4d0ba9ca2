"""Leave runs and studies behind, as the version of Holdfast that is imported leaves them.

    PYTHONPATH=<that version>/src python -m tests.compat.leave_records tests/compat/<version>.tar.gz

Run once for a version, from the root of this repository, with that version's own dependencies.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import holdfast.control.study.journal as study_journal
from tests.compat import programs


def _cut_off(make: Callable[[str], object], storage: str, dies_after: int) -> None:
    os.environ[programs.DIES_AFTER] = str(dies_after)
    os.environ["COMPAT_DRIVER"] = str(os.getpid())
    make(storage).fit()  # type: ignore[attr-defined]


def _run(storage: str) -> object:
    return programs.trainer(storage, "run")


def _finished(storage: str) -> None:
    study_journal.ARCHIVE_AFTER = 4
    programs.trainer(storage, "finished", keep=2).fit()
    programs.archived(storage).fit()


def main(target: str) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as storage:
        for make, dies_after in ((_run, 5), (programs.halved, 5), (programs.exploiting, 7)):
            driver = context.Process(target=_cut_off, args=(make, storage, dies_after))
            driver.start()
            driver.join()
            assert driver.exitcode == -signal.SIGKILL, f"{make}: ended with {driver.exitcode}"
        last = context.Process(target=_finished, args=(storage,))
        last.start()
        last.join()
        assert last.exitcode == 0, f"ended with {last.exitcode}"
        with tarfile.open(target, "w:gz") as archive:
            for folder in sorted(Path(storage).iterdir()):
                if folder.is_dir():
                    archive.add(folder, folder.name)


if __name__ == "__main__":
    main(sys.argv[1])
