"""Names for runs and studies that were given none: each belongs to one of them for ever.

To claim a name is to create the object that says whose folder it is, if there is none. One driver
can do so, whichever processes and machines try. Nobody else takes up what was claimed: it is gone
on with only by who names it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from holdfast.clock import Clock
from holdfast.control.record.identity import claim_identity
from holdfast.core.names import NAME_BYTES_MAX, cut_name, safe_name
from holdfast.errors import HoldfastBug
from holdfast.storage.base import Store
from holdfast.storage.prefix import child

_TRIES_MAX = 100
_SUFFIX_BYTES = 3  # as twice as many digits


def claim(storage: Store, wanted: str, *, kind: str, clock: Clock) -> str:
    """Return a name that nothing below `storage` had, which is now that of a new run.

    It is `wanted` if that is free and the store can tell, and else that with a few random digits.
    """
    storage.probe(writable=True)
    for name in _candidates(wanted, is_told_apart=storage.fences):
        store = child(storage, name)
        if next(iter(store.entries()), None) is not None:
            continue
        if claim_identity(store, name=name, kind=kind, clock=clock) is not None:
            return name
    raise HoldfastBug(f"none of {_TRIES_MAX} random names at {storage.url} is free")


def _candidates(wanted: str, *, is_told_apart: bool) -> Iterator[str]:
    wanted = safe_name(wanted)
    if is_told_apart:
        yield cut_name(wanted, NAME_BYTES_MAX)
    short = cut_name(wanted, NAME_BYTES_MAX - 1 - 2 * _SUFFIX_BYTES)
    yield from (f"{short}_{secrets.token_hex(_SUFFIX_BYTES)}" for _ in range(_TRIES_MAX))
