"""What counts of a run: what its journal says, and the checkpoints it names, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.checkpoint.manifests import get_manifest, manifest_key
from holdfast.control.record.identity import find_identity
from holdfast.core.checkpoint.record import RunRecord, record_of
from holdfast.journal.replay import read_journal
from holdfast.storage.base import Store
from holdfast.storage.verify import damage_of
from tests.faults.stories import must


@dataclass(frozen=True)
class State:
    """All that counts of a run at one moment."""

    record: RunRecord
    next_seq: int
    files: dict[str, bytes]


def state_of(store: Store) -> State:
    records, replay = read_journal(store, find_identity(store)[0].run_id)
    must(replay.damages == [], f"the journal is damaged: {replay.damages}")
    record = record_of((one.kind, one.data) for one in records)
    files = {}
    for kept in record.usable():
        manifest = get_manifest(store, kept.directory)
        keys = [f"{kept.directory}/{entry.path}" for entry in manifest.files]
        for key in (manifest_key(kept.directory), *keys):
            files[key] = store.get(key).data
        problems = damage_of(store, kept.directory, manifest.files)
        must(problems == [], f"{kept.directory} is damaged: {problems}")
    return State(record, replay.next_seq, files)
