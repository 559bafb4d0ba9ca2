"""How long a test waits for what must happen: for ever, but not quite.

It only keeps a test from hanging: no test may fail because the machine is busy, so none is written
that would notice whether it took a millisecond or a minute.
"""

PATIENCE_S = 120.0
