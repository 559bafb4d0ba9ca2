from __future__ import annotations

import socket

import psutil
import pytest

from holdfast.engine.machine import interface_of

FAMILIES = (socket.AF_INET, socket.AF_INET6)
HERE = [
    (address.address.partition("%")[0], name)
    for name, addresses in psutil.net_if_addrs().items()
    for address in addresses
    if address.family in FAMILIES
]


@pytest.mark.parametrize(("address", "name"), HERE)
def test_an_address_of_this_machine_has_its_interface(address: str, name: str) -> None:
    assert interface_of(address) == name


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7"])  # for documents, nobody has them
def test_an_address_of_no_interface_is_known_as_such(address: str) -> None:
    assert interface_of(address) is None


def test_on_other_systems_psutil_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    assert interface_of("127.0.0.1") == dict(HERE)["127.0.0.1"]
