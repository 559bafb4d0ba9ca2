"""Which classes and functions a record may name; see decision 0014."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast.api.config import FailureConfig
from holdfast.api.recorded_names import (
    NameRefused,
    Trust,
    recorded_class,
    recorded_dataclass,
    recorded_thing,
)
from holdfast.tune.schedulers import ASHAScheduler, FIFOScheduler, PopulationBasedTrainingReplay
from holdfast.tune.schedulers.async_hyperband import AsyncHyperBandScheduler

HERE = __name__
LOOKING, RESTORING, RUNNING = Trust.LOOKING, Trust.RESTORING, Trust.RUNNING


class Mine(FIFOScheduler):
    class Inner(FIFOScheduler):
        @staticmethod
        def stop(trial_id: str, result: dict[str, Any]) -> bool:
            return False


class NotMade:
    pass


@dataclass(frozen=True)
class Holds:
    x: int = 0


@dataclass
class Acts:
    x: int = 0

    def __post_init__(self) -> None:
        raise AssertionError("it was made")


@dataclass
class Watches:
    x: int = 0

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError("it was made")


ODD: list[object] = [None, 7, [], {}, "", ":", "os", "os:", ":x", "a b:c", "os:path..join"]
ODD += ["..os:system", "\0:x", "os:system\n"]
ALIAS = Mine
ASHA = "holdfast.tune.schedulers.async_hyperband:AsyncHyperBandScheduler"


@pytest.mark.parametrize(
    ("find", "path", "expected"),
    [
        (recorded_class, ASHA, AsyncHyperBandScheduler),
        (recorded_class, f"{HERE}:Mine", Mine),
        (recorded_class, f"{HERE}:Mine.Inner", Mine.Inner),
        (recorded_dataclass, f"{HERE}:Holds", Holds),
        (recorded_dataclass, "holdfast.api.config:FailureConfig", FailureConfig),
        (recorded_thing, f"{HERE}:Mine", Mine),
        (recorded_thing, f"{HERE}:Mine.Inner.stop", Mine.Inner.stop),
        (recorded_thing, "builtins:int", int),
    ],
)
def test_what_a_script_has_loaded_is_found_where_it_is_defined(
    find: Callable[[object, Trust], Any], path: str, expected: object
) -> None:
    assert find(path, RESTORING) is expected
    assert find(path, RUNNING) is expected


@pytest.mark.parametrize(
    ("find", "path"),
    [
        (recorded_class, f"{HERE}:ALIAS"),
        (recorded_class, f"{HERE}:FIFOScheduler"),
        (recorded_class, f"{HERE}:pytest.raises"),
        (recorded_class, f"{HERE}:NotMade"),
        (recorded_class, f"{HERE}:Gone"),
        (recorded_class, "holdfast.engine.local.zygote_line:subprocess.check_call"),
        (recorded_class, "subprocess:Popen"),
        (recorded_class, "holdfast.tune.search.variant_generator:Expression"),
        (recorded_class, "not_loaded_by_anybody:Scheduler"),
        (recorded_class, "xml.dom.minidom:parse"),
        (recorded_class, "holdfast.cli.__main__:main"),
        (recorded_dataclass, f"{HERE}:Acts"),
        (recorded_dataclass, f"{HERE}:Watches"),
        (recorded_dataclass, f"{HERE}:Mine"),
        (recorded_thing, "subprocess:check_call"),
        (recorded_thing, "shutil:rmtree"),
        (recorded_thing, "pytest:main"),
        (recorded_thing, "_pytest.config:main"),
        (recorded_thing, "holdfast.cli:main"),
        (recorded_thing, "holdfast.train.restore.pickled:unpickled"),
        (recorded_thing, "builtins:eval"),
        (recorded_thing, "builtins:type"),
        *((recorded_thing, odd) for odd in ODD),
    ],
)
def test_a_record_names_nothing_else(find: Callable[[object, Trust], Any], path: object) -> None:
    before = set(sys.modules)

    for trust in (LOOKING, RESTORING):
        with pytest.raises(NameRefused):
            find(path, trust)

    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("find", "path"),
    [
        (recorded_class, f"{HERE}:Mine"),
        (recorded_dataclass, f"{HERE}:Holds"),
        (recorded_thing, f"{HERE}:Mine"),
        (recorded_thing, ASHA),
        (recorded_class, "holdfast.tune.search.bohb.bohb_search:TuneBOHB"),
    ],
)
def test_for_a_look_there_is_nothing_but_our_own_classes_that_are_loaded(
    find: Callable[[object, Trust], Any], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "holdfast.tune.search.bohb.bohb_search", raising=False)

    with pytest.raises(NameRefused):
        find(path, LOOKING)

    assert recorded_class(ASHA, LOOKING) is ASHAScheduler
    assert "holdfast.tune.search.bohb.bohb_search" not in sys.modules


def test_a_class_that_reads_files_when_it_is_made_is_not_made_for_a_look() -> None:
    path = "holdfast.tune.schedulers.pbt_replay:PopulationBasedTrainingReplay"

    with pytest.raises(NameRefused, match="reads files"):
        recorded_class(path, LOOKING)

    assert recorded_class(path, RESTORING) is PopulationBasedTrainingReplay
