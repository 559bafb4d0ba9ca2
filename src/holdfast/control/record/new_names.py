"""Makes up names for runs and studies that were given none; no two of them get the same.

To claim a name is to create the identity of its run, if there is none. Only one driver can, however
many processes and machines try. A claimed run is resumed only by naming it.
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
_SUFFIX_BYTES = 3  # written as 6 hexadecimal digits


def claim(storage: Store, wanted: str, *, kind: str, clock: Clock) -> str:
    """Create a run under a name that was free below `storage`, and return the name.

    It is `wanted` if the store can create objects exclusively and that is free; otherwise `wanted`
    with random digits.
    """
    storage.probe(writable=True)
    for name in _candidates(wanted, tries_wanted=storage.fences):
        store = child(storage, name)
        if next(iter(store.entries()), None) is not None:
            continue
        if claim_identity(store, name=name, kind=kind, clock=clock) is not None:
            return name
    raise HoldfastBug(f"none of {_TRIES_MAX} random names at {storage.url} is free")


def _candidates(wanted: str, *, tries_wanted: bool) -> Iterator[str]:
    wanted = safe_name(wanted)
    if tries_wanted:
        yield cut_name(wanted, NAME_BYTES_MAX)
    short = cut_name(wanted, NAME_BYTES_MAX - 1 - 2 * _SUFFIX_BYTES)
    yield from (f"{short}_{secrets.token_hex(_SUFFIX_BYTES)}" for _ in range(_TRIES_MAX))
