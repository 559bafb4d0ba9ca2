from __future__ import annotations

import math
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.plain_data import NotPlain, from_plain, opened_as, reference_to, to_plain
from holdfast.checkpoint import Checkpoint
from holdfast.storage.memory import MemoryStore
from holdfast.storage.records import seal, unseal
from holdfast.train import FailureConfig
from tests.unit.train.restore import plain_things
from tests.unit.train.restore.plain_things import (
    ORDERED,
    Colour,
    Counting,
    Model,
    Optimizer,
    Pair,
    Scaled,
    Slotted,
    Text,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([Path("/data/train"), Path("x y"), "@path", "$float", "~"])
)
keys = st.text() | st.sampled_from(["@tuple", "@@", "$float", "@path"]) | st.integers()
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def at_rest(value: object) -> Any:
    """Return a value after a round trip through JSON."""
    return from_plain(unseal(seal({"value": to_plain(value)}))["value"])


def is_same(left: object, right: object) -> bool:
    """Whether two values are equal, and of the same types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or repr(left) == repr(right)
    if isinstance(left, dict) and isinstance(right, dict):
        pairs = zip(left.items(), right.items(), strict=False)
        return len(left) == len(right) and all(
            map(is_same, *zip(*pairs, strict=True)) if left else []
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return left == right


@given(values)
def test_a_plain_value_comes_back_as_it_was(value: object) -> None:
    assert is_same(at_rest(value), value)


@pytest.mark.parametrize(
    "value",
    [
        Optimizer("adam", options={"eps": 1e-8, "groups": (1, 2)}),
        Slotted(4),
        FailureConfig(max_failures=-1, hang_timeout_s=math.inf),
    ],
)
def test_a_dataclass_comes_back_as_one(value: object) -> None:
    assert at_rest({"given": value}) == {"given": value}


@pytest.mark.parametrize("value", [Model, plain_things.train, Model.of_nothing, int])
def test_what_can_be_imported_is_kept_by_name(value: object) -> None:
    assert at_rest(value) is value


def holds_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


LOCAL = type("Local", (), {})
NOT_PLAIN: dict[str, object] = {
    "numpy scalar": np.float64(0.5),
    "numpy number that is an int elsewhere": np.int64(3),
    "array": np.zeros(2),
    "set": {1, 2},
    "bytes": b"x",
    "named tuple": Pair(1, 2),
    "enum": Colour.RED,
    "text of another class": Text("x"),
    "ordered dictionary": ORDERED,
    "path of another system": PureWindowsPath("x"),
    "pure path": PurePosixPath("x"),
    "half a character": "\ud800",
    "half a character in a key": {"\ud800": 1},
    "lambda": lambda: None,
    "class that cannot be imported": LOCAL,
    "dataclass that does more than it holds": Scaled(1.0),
    "dataclass that holds more than it takes": Counting(1),
    "object": Model(),
    "itself": holds_itself(),
}


@pytest.mark.parametrize("case", NOT_PLAIN)
@pytest.mark.parametrize("depth", [0, 1])
def test_what_would_come_back_as_something_else_is_not_plain(case: str, depth: int) -> None:
    value = [NOT_PLAIN[case]] if depth else NOT_PLAIN[case]

    with pytest.raises(NotPlain):
        to_plain(value)


@pytest.mark.req("T-094")
def test_a_checkpoint_is_kept_as_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("w")
    config = {"begin_with": Checkpoint.from_directory(tmp_path), "lr": 0.1}

    again = at_rest(config)["begin_with"]

    with again.as_directory() as folder:
        assert Path(folder, "model.pt").read_text() == "w"


SECRETS = "access_key=AKIA&secret_key=hush&session_token=hush"


@pytest.mark.parametrize(
    ("location", "reference"),
    [
        ("s3://lab/run/c", "s3://lab/run/c"),
        (f"s3://lab/run/c?region=eu&{SECRETS}", "s3://lab/run/c?region=eu"),
        (f"s3://lab/run/c?{SECRETS}", "s3://lab/run/c"),
        ("s3://AKIA:hush@lab/run/c", "s3://lab/run/c"),
        ("az://lab/c?account_name=me&account_key=hush", "az://lab/c?account_name=me"),
        ("az://lab/c?sas_token=hush&client_secret=hush", "az://lab/c"),
        ("gs://lab/c?service_account_key=hush&endpoint=e", "gs://lab/c?endpoint=e"),
    ],
)
def test_what_opens_a_store_is_not_written_down(location: str, reference: str) -> None:
    assert reference_to(Checkpoint(location)) == reference


def test_a_checkpoint_of_a_run_is_kept_without_the_secrets_of_its_store() -> None:
    class Bucket(MemoryStore):
        url = "s3://lab/run"

        def describe(self) -> dict[str, Any]:
            given = {"endpoint_override": "http://here", "access_key": "A", "secret_key": "hush"}
            return {"path": self.url, "options": given}

    checkpoint = Checkpoint("s3://lab/run/checkpoint_000001")
    checkpoint.__setstate__(
        {**checkpoint.__getstate__(), "_run": (Bucket().describe(), "checkpoint_000001")}
    )

    reference = reference_to(checkpoint)

    assert reference == "s3://lab/run/checkpoint_000001?endpoint_override=http%3A%2F%2Fhere"


@pytest.mark.parametrize(
    ("location", "beside", "opened"),
    [
        ("s3://lab/run/c", f"s3://lab/other?{SECRETS}", f"s3://lab/run/c?{SECRETS}"),
        ("s3://lab/c?region=eu", "s3://lab/x?region=us&a=b", "s3://lab/c?region=eu&a=b"),
        ("s3://lab/run/c", f"s3://another/other?{SECRETS}", "s3://lab/run/c"),
        ("s3://lab/run/c", f"gs://lab/other?{SECRETS}", "s3://lab/run/c"),
        ("s3://lab/run/c", "s3://lab/other", "s3://lab/run/c"),
        ("s3://lab/run/c", None, "s3://lab/run/c"),
        ("/data/c", f"s3://lab/other?{SECRETS}", "/data/c"),
    ],
)
def test_only_the_store_beside_lends_what_opens_it(
    location: str, beside: str | None, opened: str
) -> None:
    place, _, query = opened_as(location, beside).partition("?")

    assert place == opened.partition("?")[0]
    assert sorted(query.split("&")) == sorted(opened.partition("?")[2].split("&"))


def test_a_checkpoint_on_a_filesystem_object_is_not_plain(tmp_path: Path) -> None:
    from pyarrow import fs

    with pytest.raises(NotPlain):
        to_plain(Checkpoint(str(tmp_path), fs.LocalFileSystem()))
