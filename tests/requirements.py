"""The acceptance list: which requirements there are, and which are claimed to be met so far.

T-001 … T-094 are about training, U-001 … U-131 about tuning. A batch of work claims the ones it
meets; from then on `tests/unit/test_requirements.py` wants a test that names each of them with
`@pytest.mark.req("T-058")`.
"""

from __future__ import annotations

KNOWN = frozenset(
    [f"T-{number:03d}" for number in range(1, 95)] + [f"U-{number:03d}" for number in range(1, 132)]
)

CLAIMED: dict[str, dict[str, str]] = {
    "foundation": {
        "T-055": "every rank gets the newest committed checkpoint at the start of each attempt",
        "T-056": "`as_directory` and `to_directory` both give a folder that equals what was saved",
        "T-057": "from remote storage that folder is a local copy; from local storage, no copy",
        "T-058": "one download per node, whatever the number of workers and their timing",
        "T-059": "all workers of a node share the same folder",
    },
}
