"""Which modules a zygote imports: those the trainer names, and what the driver has imported.

Of the latter only those on a list, each of which was tried: after its import, a fork of the process
has one thread, and the library does its work in the fork, with as many threads as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

# Tried with numpy 2.4, pandas 3.1, pyarrow 26, torch 2.13. OpenBLAS (numpy) ends its threads for
# a fork and starts them again; the thread of jemalloc (pyarrow) is started again in the child;
# torch and its OpenMP have none before the first computation.
SAFE_TO_PRELOAD = (
    "numpy",
    "pandas",
    "pyarrow",
    "torch",
)


def to_preload(asked: Sequence[str]) -> list[str]:
    """Return what a zygote of this process should import, each module once."""
    wanted = [*asked, *(name for name in SAFE_TO_PRELOAD if name in sys.modules)]
    return list(dict.fromkeys(wanted))
