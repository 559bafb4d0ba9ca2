"""Which modules a zygote imports."""

from __future__ import annotations

import sys

import pytest

from holdfast.engine.local import zygote_line


def test_what_the_driver_has_imported_is_imported_if_it_is_known_to_be_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(zygote_line, "SAFE_TO_PRELOAD", ("json", "never_heard_of"))

    assert "pytest" in sys.modules
    assert zygote_line.to_preload(["mine", "json"]) == ["mine", "json"]
    assert zygote_line.to_preload(["mine"]) == ["mine", "json"]
