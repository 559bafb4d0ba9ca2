from __future__ import annotations

import pytest
import xxhash

from holdfast.core.checkpoint.manifest import FileEntry
from holdfast.storage import digest
from holdfast.storage.digest import ALGORITHM, Digester, blocks_of, combine, digest_bytes

MIB = 1 << 20


def test_a_short_file_has_the_plain_digest_that_other_tools_compute() -> None:
    assert digest_bytes(b"") == "99aa06d3014798d86001c324468d497f"
    assert digest_bytes(b"holdfast") == xxhash.xxh3_128_hexdigest(b"holdfast")


def test_the_name_of_the_algorithm_says_how_long_a_block_is() -> None:
    assert ALGORITHM == "xxh3-128/16MiB"
    assert digest.BLOCK_BYTES == 16 * MIB


def test_a_file_of_one_block_is_digested_plainly_and_a_longer_one_by_its_blocks() -> None:
    block = bytes(range(256)) * (16 * MIB // 256)

    assert digest_bytes(block) == xxhash.xxh3_128_hexdigest(block)
    assert digest_bytes(block + b"x") == xxhash.xxh3_128_hexdigest(
        xxhash.xxh3_128_digest(block) + xxhash.xxh3_128_digest(b"x")
    )


@pytest.mark.parametrize(
    ("size", "blocks"),
    [(0, 1), (1, 1), (16 * MIB - 1, 1), (16 * MIB, 1), (16 * MIB + 1, 2), (32 * MIB, 2)],
)
def test_an_empty_file_has_one_block_and_a_full_block_is_not_followed_by_an_empty_one(
    size: int, blocks: int
) -> None:
    assert len(blocks_of([FileEntry("a", size, "")])) == blocks


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "BLOCK_BYTES", 8)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 40])
@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_the_digest_does_not_depend_on_how_the_bytes_went_by(size: int, chunk: int) -> None:
    data = bytes(range(size))
    digester = Digester()
    for start in range(0, size, chunk):
        digester.update(memoryview(data)[start : start + chunk])

    blocks = [xxhash.xxh3_128_digest(data[at : at + 8]) for at in range(0, size, 8)] or [
        xxhash.xxh3_128_digest(b"")
    ]

    assert digester.hexdigest() == combine(blocks) == digest_bytes(data)
    assert digester.size == size


@pytest.mark.usefixtures("short_blocks")
def test_the_digest_can_be_read_off_before_the_end_and_goes_on() -> None:
    digester = Digester()
    digester.update(b"12345678")
    halfway = digester.hexdigest()
    digester.update(b"9")

    assert halfway == digest_bytes(b"12345678")
    assert digester.hexdigest() == digest_bytes(b"123456789")


@pytest.mark.usefixtures("short_blocks")
def test_blocks_in_another_order_have_another_digest() -> None:
    assert digest_bytes(b"12345678" + b"abcdefgh") != digest_bytes(b"abcdefgh" + b"12345678")


def test_the_digests_of_two_blocks_differ_from_the_digest_of_their_digests_as_a_file() -> None:
    """One block's digest is not combined again, so that a short file needs no special tool."""
    first = xxhash.xxh3_128_digest(b"one")

    assert combine([first]) == first.hex()
    assert combine([first, first]) == xxhash.xxh3_128_hexdigest(first + first)
