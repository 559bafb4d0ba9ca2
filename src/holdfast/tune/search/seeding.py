"""Makes random generators without state: one for every purpose, derived from a single seed.

The n-th draw depends only on the seed and n, not on earlier draws. So nothing has to be stored to
resume after a crash, and draws do not affect each other.
"""

from __future__ import annotations

import hashlib
import json
import random
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.api.checks import is_whole, this_is
from holdfast.errors import ConfigError

SEED_BITS = 32  # as much as numpy's older generators take


def number_for(seed: int, *purpose: str | int) -> int:
    """Return a 64-bit number that is the same for the same seed and purpose, everywhere."""
    text = json.dumps([seed, *purpose]).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big")


def generator_for(seed: int, *purpose: str | int) -> random.Random:
    """Return a new generator that is the same for the same seed and purpose."""
    return random.Random(number_for(seed, *purpose))


def seed_of(given: object, name: str = "seed") -> int:
    """Return the seed for an argument: a whole number, a generator, or None for a random seed.

    A random seed comes from numpy's global generator if the script has seeded it, else from the
    system. A generator is asked for a number, so that two searches that share it differ.
    """
    if given is None:
        drawn = _drawn_from_numpy()
        return secrets.randbits(SEED_BITS) if drawn is None else drawn
    if is_whole(given):
        return int(given)  # type: ignore[call-overload,no-any-return]
    if isinstance(given, random.Random):
        return given.getrandbits(SEED_BITS)
    for method in ("integers", "randint"):  # numpy's Generator, numpy's RandomState
        if hasattr(given, method):
            return int(getattr(given, method)(0, 2**31 - 1))
    raise ConfigError(
        f"{name}={given!r}: not a whole number, {this_is(given)}",
        hint=f"{name}=42, or None for a random seed that is stored with the study",
    )


def _drawn_from_numpy() -> int | None:
    """Return a number from numpy's global generator; None if it is not seeded or not imported.

    Unseeded, it would give the same number in processes forked after numpy was imported.
    """
    numpy_random: Any = sys.modules.get("numpy.random")
    generator_of = getattr(numpy_random, "get_bit_generator", None)
    if generator_of is None or getattr(generator_of(), "seed_seq", None) is not None:
        return None
    return int(numpy_random.randint(0, 2**SEED_BITS, dtype="int64"))


@contextmanager
def seeded_globals(seed: int) -> Iterator[None]:
    """Seed `random` and `numpy.random`, and restore their states afterwards.

    Users' functions draw from them, and must return the same when they are called again.
    """
    before = random.getstate()
    numpy: Any = sys.modules.get("numpy")
    numpy_before = numpy.random.get_state() if numpy is not None else None
    random.seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        if numpy is not None:
            numpy.random.set_state(numpy_before)
