"""The binary layer of TensorBoard's event files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.tune.logger.event_files import crc32c, framed, frames_in
from tests.unit.tune.logger.event_reader import crc


@given(data=st.binary(max_size=200))
def test_checksums_are_as_they_are_defined(data: bytes) -> None:
    assert crc32c(data) == crc(data)


@given(bodies=st.lists(st.binary(max_size=80), max_size=5), cut=st.integers(0, 400))
def test_frames_are_read_back_up_to_the_first_that_is_not_whole(
    bodies: list[bytes], cut: int
) -> None:
    frames = [framed(body) for body in bodies]
    data = b"".join(frames)[:cut]

    whole = list(frames_in(data))

    assert whole == list(zip(frames, bodies, strict=True))[: len(whole)]
    rest = len(data) - sum(len(frame) for frame, _ in whole)
    assert rest == 0 or rest < len(frames[len(whole)])


@given(body=st.binary(min_size=1, max_size=40), bit=st.integers(0, 7), data=st.data())
def test_a_frame_with_a_flipped_bit_is_not_whole(
    body: bytes, bit: int, data: st.DataObject
) -> None:
    frame = bytearray(framed(body))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= 1 << bit

    assert list(frames_in(bytes(frame))) == []
