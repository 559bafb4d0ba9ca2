"""What does it cost to verify every byte of a checkpoint before it is used?

Ours is `newest_good`: manifest read, sizes compared, every byte digested. The limit is a loop in
one thread that reads the same files into one buffer. Warm, both read from the page cache; cold,
both read from the disk (as far as the machine below does not cache it).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.files import drop_from_cache, make_files, many_files, one_file, read_raw
from bench.question import MIB, Claim, Question, Setting, Side, at_least, ratio, seconds
from bench.runs import save, scratch_run
from holdfast.control.record.open_run import OpenRun

WARM_READS = 5


@contextmanager
def one_large_file(setting: Setting) -> Iterator[Question]:
    total = setting.scale.saved_bytes
    with _question(setting, one_file(total), f"{total // MIB} MB in one file") as question:
        yield question


@contextmanager
def many_small_files(setting: Setting) -> Iterator[Question]:
    total, count = setting.scale.saved_bytes, setting.scale.files
    what = f"{total // MIB} MB in {count:,} files"
    with _question(setting, many_files(total, count), what) as question:
        yield question


@contextmanager
def _question(setting: Setting, sizes: Mapping[str, int], what: str) -> Iterator[Question]:
    source = setting.folder / "source"
    make_files(source, sizes)
    megabytes = sum(sizes.values()) / 1e6
    with scratch_run(setting.folder / "run") as run:
        saved = setting.folder / "run" / save(run, source).directory

        def warm(work: Callable[[], object]) -> float:
            """It takes a twentieth of a second, in which a machine may well do something else."""
            return megabytes / statistics.median(seconds(work) for _ in range(WARM_READS))

        def cold(work: Callable[[], object]) -> float:
            drop_from_cache(saved)
            return megabytes / seconds(work)

        def verify() -> None:
            _verify(run)

        def read() -> None:
            read_raw(saved, sizes)

        yield Question(
            f"verified restore of {what} from local disk",
            "MB/s",
            [
                Side("holdfast", lambda: warm(verify)),
                Side("read", lambda: warm(read)),
                Side("holdfast-cold", lambda: cold(verify)),
                Side("read-cold", lambda: cold(read)),
            ],
            [
                Claim("of a plain read, warm", ratio("holdfast", "read"), at_least(0.8)),
                Claim("of a plain read, cold", ratio("holdfast-cold", "read-cold")),
            ],
        )


def _verify(run: OpenRun) -> None:
    assert run.newest_good() is not None, "the checkpoint was damaged while it was measured"
