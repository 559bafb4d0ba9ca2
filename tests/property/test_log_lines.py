"""Whatever ranks print, whenever: nothing is lost uncounted, nothing changes its order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.log_lines import LeftOut, Line, LineCutter, Together

RANKS = 3
printed = st.lists(
    st.tuples(
        st.integers(0, RANKS - 1), st.sampled_from("abc"), st.sampled_from([0.0, 0.05, 0.3, 0.7])
    ),
    max_size=60,
)


def show(acts: list[tuple[int, str, float]], lines_max: int) -> list[Line | LeftOut]:
    """Return all that is shown; the time between two lines is part of the act."""
    together, now, found = Together(range(RANKS), window_s=0.5, lines_max=lines_max), 0.0, []
    for rank, text, pause in acts:
        now += pause
        if pause:
            found += together.take(now)
        together.add(rank, text, now)
    return found + together.take(now, is_end=True)


@given(printed)
def test_every_rank_can_read_its_own_lines_in_its_own_order(
    acts: list[tuple[int, str, float]],
) -> None:
    found = show(acts, lines_max=10**6)

    for rank in range(RANKS):
        told = [one.text for one in found if isinstance(one, Line) and rank in one.ranks]
        assert told == [text for whose, text, _ in acts if whose == rank]


@given(printed, st.integers(1, 3))
def test_every_line_is_shown_or_counted(acts: list[tuple[int, str, float]], lines_max: int) -> None:
    found = show(acts, lines_max)

    shown = sum(len(one.ranks) for one in found if isinstance(one, Line))
    counted = sum(one.lines for one in found if isinstance(one, LeftOut))
    assert shown + counted == len(acts)
    assert all(len(set(one.ranks)) == len(one.ranks) for one in found)


@given(st.lists(st.text("ab \x1b█", max_size=5), max_size=20), st.data())
def test_lines_are_the_same_however_their_bytes_come(lines: list[str], data: st.DataObject) -> None:
    stream = "".join(f"{line}\n" for line in lines).encode()
    cutter, found = LineCutter(), list[str]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += cutter.feed(stream[:size])
        stream = stream[size:]

    assert found + cutter.finish() == [line.rstrip() for line in lines if line.strip()]
