"""How fast is a journal read back, each line checked and decoded?

Beside it, `json.loads` of every line of the same files: decoded, but nothing checked.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.events import fill
from bench.question import Claim, Question, Setting, Side, at_least, ratio, seconds, value
from bench.runs import scratch_run
from holdfast.journal.replay import Replay
from holdfast.journal.segments import JOURNAL
from holdfast.storage.base import Store


@contextmanager
def question(setting: Setting) -> Iterator[Question]:
    count, folder = setting.scale.events, setting.folder / "run"
    with scratch_run(folder) as run:
        fill(run.journal, count)
        store = run.store

        yield Question(
            f"replay of {count:,} events",
            "events/s",
            [
                Side("holdfast", lambda: count / seconds(lambda: _replay(store))),
                Side("json.loads", lambda: count / seconds(lambda: _load(folder / JOURNAL))),
            ],
            [
                Claim("events/s", value("holdfast"), at_least(200_000)),
                Claim("of json.loads per line", ratio("holdfast", "json.loads")),
            ],
        )


def _replay(store: Store) -> None:
    deque(Replay(store).records(), maxlen=0)


def _load(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        with path.open("rb") as lines:
            deque(map(json.loads, lines), maxlen=0)
