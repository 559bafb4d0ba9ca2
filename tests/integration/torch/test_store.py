"""The store that ranks meet at: where it listens, and with which versions of torch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psutil
import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from holdfast.core.placement import LOOPBACK, Place
from holdfast.frameworks.torch import process_group
from holdfast.frameworks.torch.process_group import _address, _open_store

TIMEOUT = timedelta(seconds=10)


def _place(local: int, world: int) -> Place:
    return Place(
        rank=0, world_size=world, local_rank=0, local_world_size=local, node_rank=0, node="node-0"
    )


def test_on_one_node_ranks_meet_where_nobody_else_can_come() -> None:
    assert _address(_place(4, 4)) == LOOPBACK


def test_on_several_nodes_ranks_meet_at_an_address_of_this_machine() -> None:
    own = {one.address for every in psutil.net_if_addrs().values() for one in every}

    assert _address(_place(2, 4)) in own


def test_a_store_listens_at_its_address_only_and_answers_there() -> None:
    store = _open_store(LOOPBACK, 2, TIMEOUT)
    other = TCPStore(LOOPBACK, store.port, 2, timeout=TIMEOUT)
    other.set("said", "yes")

    listening = {
        one.laddr.ip
        for one in psutil.Process().net_connections("inet")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == store.port
    }
    assert store.get("said") == b"yes"
    assert listening == {LOOPBACK}


def test_a_torch_that_takes_no_socket_with_libuv_is_asked_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def older(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("use_libuv", True):
            raise NotImplementedError("not with a listen fd")
        return TCPStore(*args, **kwargs)

    monkeypatch.setattr(process_group, "TCPStore", older)

    store = _open_store(LOOPBACK, 1, TIMEOUT)
    store.set("said", "yes")

    assert store.get("said") == b"yes"
