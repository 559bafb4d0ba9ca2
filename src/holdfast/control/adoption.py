"""What a new driver finds that the journal does not tell: commits cut off, numbers forgotten."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

from holdfast.checkpoint.manifests import manifest_directories, read_manifests
from holdfast.control.record.identity import RunIdentity
from holdfast.core.checkpoint.manifest import Manifest
from holdfast.core.checkpoint.record import RunRecord
from holdfast.errors import Damaged
from holdfast.storage.base import Store

log = logging.getLogger(__name__)

_NUMBERED = re.compile(r"checkpoint_(\d+)")


def unrecorded_commits(
    store: Store, identity: RunIdentity, record: RunRecord, *, forgetful: bool
) -> list[Manifest]:
    """Return the checkpoints whose driver died between the manifest and the journal.

    Where the journal has lost records, every manifest counts: it is the checkpoint.
    """
    known = {kept.directory for kept in record.kept.values()}
    found = []
    for directory, manifest in read_manifests(store, known):
        if isinstance(manifest, Damaged):
            log.warning("%s is not used: %s", directory, manifest.message)
        elif manifest.run_id != identity.run_id:
            log.warning("%s is not used: it belongs to run %s", directory, manifest.run_id)
        elif forgetful or record.is_current(manifest):
            found.append(manifest)
    return sorted(found, key=lambda manifest: manifest.number)


def first_free_number(
    store: Store, record: RunRecord, adopted: Iterable[Manifest], *, forgetful: bool
) -> int:
    """Return a number that was certainly never given out, whatever the journal has lost."""
    used = {record.next_number - 1, *(manifest.number for manifest in adopted)}
    if forgetful:
        names = (*store.folders(), *manifest_directories(store))
        used |= {int(found[1]) for name in names if (found := _NUMBERED.fullmatch(name))}
    return max(used) + 1
