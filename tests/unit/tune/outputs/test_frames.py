"""Frames of TensorBoard's files that are made from a shape, and those that are made anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tune.logger.frames import DIFFERENT_MAX, Shape, crc32c, framed, frames_in
from tests.unit.tune.logger.event_reader import crc

parts = st.lists(st.one_of(st.binary(max_size=40), st.integers(0, 12)), max_size=8)


@given(data=st.binary(max_size=200))
def test_checksums_are_as_they_are_defined(data: bytes) -> None:
    assert crc32c(data) == crc(data)


@given(parts=parts, source=st.randoms(use_true_random=False))
def test_a_frame_of_a_shape_is_the_frame_of_its_data(
    parts: list[bytes | int], source: object
) -> None:
    shape = Shape(*parts)
    for _ in range(3):
        filled = [
            part if isinstance(part, bytes) else source.randbytes(part)  # type: ignore[attr-defined]
            for part in parts
        ]
        different = b"".join(
            one for one, part in zip(filled, parts, strict=True) if isinstance(part, int)
        )

        assert shape.frame(different) == framed(b"".join(filled))


@pytest.mark.parametrize("size", [DIFFERENT_MAX, DIFFERENT_MAX + 1])
def test_also_where_very_much_differs(size: int) -> None:
    different = bytes(place % 251 for place in range(size))

    frame = Shape(b"before", size, b"after").frame(different)

    assert frame == framed(b"before" + different + b"after")
    assert [body for _, body in frames_in(frame)] == [b"before" + different + b"after"]
