"""What a zygote prints: passed on to who reads the driver's output, and kept for when it dies."""

from __future__ import annotations

import contextlib
import os
import sys

from holdfast.engine.local.stacks import new_file

LINES_MAX = 5
PRINTED_LAST = "and printed last:"
_READ_BYTES = 1 << 16


class Printed:
    """A file without a name that a zygote prints to; the driver reads it.

    Attributes:
        handle: The file, open for writing at its end.
        last_lines: The last lines that were passed on.
    """

    def __init__(self) -> None:
        self.handle = new_file()
        self.last_lines = ""
        self._read_up_to = 0

    def pass_on(self) -> None:
        """Print what has come since the last time."""
        while data := os.pread(self.handle, _READ_BYTES, self._read_up_to):
            self._read_up_to += len(data)
            text = data.decode(errors="replace")
            with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it
                sys.stderr.write(text)
            lines = [line for line in (self.last_lines + text).splitlines() if line.strip()]
            self.last_lines = "\n".join(lines[-LINES_MAX:])

    def close(self) -> None:
        """Print what is left, and let go of it."""
        self.pass_on()
        os.close(self.handle)
