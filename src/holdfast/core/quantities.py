"""Formats durations and counts for people."""

from __future__ import annotations

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def duration(seconds: float) -> str:
    """Return a time in one unit and few digits: `0.0012 s`, `4.5 s`, `32 min`, `2.1 h`."""
    seconds = max(0.0, seconds)
    for unit_s, name in _UNITS:
        if seconds >= 2 * unit_s:
            return f"{_rounded(seconds / unit_s)} {name}"
    return f"{_rounded(seconds)} s"


def _rounded(amount: float) -> str:
    if amount >= 10:
        return f"{amount:.0f}"
    if amount >= 1:
        return f"{amount:.1f}".removesuffix(".0")
    return f"{amount:.2g}" if amount >= 1e-4 else "0"


def elapsed(seconds: float) -> str:
    """Return a time that counts up in its two largest units: `2 h 5 min`."""
    whole = int(max(0.0, seconds))
    days, hours = divmod(whole // 3600, 24)
    minutes, rest = whole // 60 % 60, whole % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (count, _) in enumerate(parts) if count), 3)
    return " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count) or "0 s"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number of things: `1 trial`, `2 trials`."""
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
