"""How close does a commit to local disk come to writing and syncing the same files?

Ours is everything from the number given out to the acknowledgement: read from a folder in the page
cache, digest, write, sync, rename, manifest, two journal records. The limit is a plain loop in one
thread that writes bytes from memory and syncs each file, and then the folder.

Two things would fall on whoever comes next, and are kept away. ext4 without a journal is slow to
make files for minutes after many were deleted: so what was written stays until the question is
done. A virtual machine may give free memory back to its host, and the first write to a page that
it must ask for again takes ten times longer: so the pages of the file cache that one side filled
are freed just before the next one begins, which then gets them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.files import drop_from_cache, make_files, many_files, one_file, write_raw
from bench.question import MIB, Claim, Question, Setting, Side, at_least, ratio, seconds
from bench.runs import save, scratch_run

THREADS = 8


@contextmanager
def one_large_file(setting: Setting) -> Iterator[Question]:
    total = setting.scale.saved_bytes
    yield _question(setting, one_file(total), f"{total // MIB} MB in one file", threads=1)


@contextmanager
def many_small_files(setting: Setting) -> Iterator[Question]:
    total, count = setting.scale.saved_bytes, setting.scale.files
    what = f"{total // MIB} MB in {count:,} files"
    yield _question(setting, many_files(total, count), what, threads=THREADS)


class _Targets:
    """Folders to write to, each used once."""

    def __init__(self, folder: Path) -> None:
        self._folders = (folder / f"target-{number}" for number in itertools.count())
        self._last: Path | None = None
        self._now: Path | None = None

    def next(self) -> Path:
        self._last, self._now = self._now, next(self._folders)
        return self._now

    def free_last(self) -> None:
        """Free the memory that caches what was written to the folder before this one."""
        if self._last is not None:
            drop_from_cache(self._last)


def _question(setting: Setting, sizes: Mapping[str, int], what: str, *, threads: int) -> Question:
    source = setting.folder / "source"
    contents = make_files(source, sizes)
    megabytes = sum(sizes.values()) / 1e6
    targets = _Targets(setting.folder)

    def holdfast() -> float:
        with scratch_run(targets.next()) as run:
            return megabytes / seconds(lambda: save(run, source), after=targets.free_last)

    def raw(threads: int) -> float:
        target = targets.next()
        return megabytes / seconds(
            lambda: write_raw(target, contents, threads=threads), after=targets.free_last
        )

    sides = [Side("holdfast", holdfast), Side("raw", lambda: raw(1))]
    claims = [Claim("of raw write+fsync", ratio("holdfast", "raw"), at_least(0.85))]
    if threads > 1:
        sides.append(Side("raw-threads", lambda: raw(threads)))
        claims.append(
            Claim(f"of raw write+fsync in {threads} threads", ratio("holdfast", "raw-threads"))
        )
    return Question(f"commit of {what} to local disk", "MB/s", sides, claims)
