"""What every implementation of an interface must do, as tests: ours pass them, and so can yours.

Subclass a suite in a test file, say how to open what you made, and pytest does the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def refused(kind: type[Exception]) -> Iterator[None]:
    """Fail unless an error of this kind comes out of the block."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"nothing was refused; {kind.__name__} was expected")
