from __future__ import annotations

import copy
import gc
import os
import pickle
import resource
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

import holdfast
from holdfast.errors import ConfigError, StoreFull
from holdfast.objects import ObjectLost
from holdfast.objects.refs import LARGE_BYTES, Shared, problem_with, share_if_large, unshared


def address_of(ref: holdfast.ObjectRef) -> str:
    return str(ref.__reduce__()[1][2])  # type: ignore[index]


def open_objects() -> list[str]:
    """Return the labels of the objects that this process holds open."""
    labels = []
    for handle in os.listdir("/proc/self/fd"):
        try:
            label = os.readlink(f"/proc/self/fd/{handle}")
        except OSError:
            continue
        if "holdfast-object-" in label:
            labels.append(label)
    return labels


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    before = set(open_objects())
    yield
    if set(open_objects()) - before:
        gc.collect()  # an error that was raised may be part of a cycle
    assert set(open_objects()) <= before


# ---------------------------------------------------------------------- values


class Model:
    def __init__(self, model_id: int) -> None:
        self.model_id = model_id
        self.weights = np.full(1000, float(model_id))


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        b"x" * 100_000,
        {"a": [1, (2.5, None)], 3: {"b"}},
        [],
        {"self": list(range(10_000))},
    ],
    ids=["none", "text", "bytes", "nested", "empty", "long"],
)
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    ref = holdfast.put(value)

    assert holdfast.get(ref) == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24).reshape(2, 3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(20)[::2],
        np.zeros((0, 3)),
        np.array(7.0),
        np.array(["a", None, 3], dtype=object),
        np.array([(1, 2.0)], dtype=[("n", "i4"), ("x", "f8")]),
        np.array(["2024-01-01"], dtype="datetime64[D]"),
    ],
    ids=["c", "fortran", "strided", "empty", "scalar", "objects", "records", "times"],
)
def test_an_array_comes_back_as_it_was(array: Any) -> None:
    again = holdfast.get(holdfast.put(array))

    assert again.dtype == array.dtype
    assert again.shape == array.shape
    np.testing.assert_array_equal(again, array)


def test_a_table_comes_back_as_it_was() -> None:
    frame = pd.DataFrame({"x": np.arange(1000), "y": ["a"] * 1000})

    pd.testing.assert_frame_equal(holdfast.get(holdfast.put(frame)), frame)


def test_an_object_of_a_class_that_no_module_has_comes_back() -> None:
    class Local(Model):
        pass

    again = holdfast.get(holdfast.put(Local(3)))

    assert (again.model_id, again.weights[0]) == (3, 3.0)


def test_buffers_of_any_size_lie_apart() -> None:
    arrays = [np.full(size, size % 251, dtype=np.uint8) for size in (0, 1, 63, 64, 65, 4097, 1)]

    again = holdfast.get(holdfast.put(arrays))

    assert [list(array) for array in again] == [list(array) for array in arrays]


def test_arrays_are_read_where_they_lie_and_cannot_be_written_to() -> None:
    ref = holdfast.put({"x": np.arange(1000)})

    first, other = holdfast.get(ref)["x"], holdfast.get(ref)["x"]

    assert np.shares_memory(first, other)
    assert not first.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.flags.writeable = True


def test_what_becomes_of_a_value_after_it_was_put_makes_no_difference() -> None:
    array = np.zeros(10)
    ref = holdfast.put(array)

    array += 1

    assert holdfast.get(ref).sum() == 0


def test_a_value_is_not_kept_after_it_was_put() -> None:
    value = {"model": Model(1), "ref": holdfast.put(1)}
    model = weakref.ref(value["model"])
    gc.disable()
    try:
        ref = holdfast.put(value)
        del value

        assert model() is None
    finally:
        gc.enable()
    assert holdfast.get(ref)["model"].model_id == 1


def test_what_is_no_array_is_made_anew_by_every_get() -> None:
    ref = holdfast.put({"seen": []})

    holdfast.get(ref)["seen"].append(1)

    assert holdfast.get(ref) == {"seen": []}


def test_nobody_can_write_to_the_memory_of_an_object() -> None:
    ref = holdfast.put(np.arange(1000))

    handle = os.open(address_of(ref), os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            os.pwrite(handle, b"x", 0)
        with pytest.raises(PermissionError):
            os.truncate(handle, 0)
    finally:
        os.close(handle)


def test_a_list_of_references_gives_a_list_of_values() -> None:
    refs = [holdfast.put(number) for number in range(3)]

    assert holdfast.get(refs) == [0, 1, 2]
    assert holdfast.get(tuple(refs)) == [0, 1, 2]
    assert holdfast.get([]) == []


# ---------------------------------------------------------------------- references


def test_references_are_equal_if_they_are_to_the_same_object() -> None:
    ref, other = holdfast.put(1), holdfast.put(1)
    again = pickle.loads(pickle.dumps(ref))

    assert ref == again == copy.deepcopy(ref) == copy.copy(ref)
    assert ref != other
    assert {ref: "x"}[again] == "x"
    assert ref.id == again.hex() != other.id
    assert ref != ref.id


def test_a_reference_is_small_whatever_it_refers_to() -> None:
    ref = holdfast.put(np.zeros(1_000_000))

    assert ref.size_bytes >= 8_000_000
    assert len(pickle.dumps(ref)) < 1000


def test_the_object_is_freed_with_the_last_reference_in_the_process_that_put_it() -> None:
    ref = holdfast.put(np.arange(1000))
    other = pickle.loads(pickle.dumps(ref))
    sent = pickle.dumps(ref)
    del ref
    assert len(holdfast.get(other)) == 1000
    del other

    late = pickle.loads(sent)

    with pytest.raises(ObjectLost, match="was freed: the process that put it") as caught:
        holdfast.get(late)
    assert "keep the ObjectRef that put returned" in str(caught.value)
    assert isinstance(problem_with(late), ObjectLost)


def test_what_was_got_stays_after_the_object_is_freed() -> None:
    ref = holdfast.put(np.arange(1000))
    array = holdfast.get(ref)

    del ref

    assert array.sum() == 499_500


def test_references_inside_a_value_live_as_long_as_it_does() -> None:
    inner = holdfast.put("inside")
    outer = holdfast.put({"deep": [inner]})
    del inner

    assert holdfast.get(holdfast.get(outer)["deep"][0]) == "inside"


def test_a_number_that_belongs_to_another_file_by_now_is_not_taken_for_the_object() -> None:
    """Opening a pipe without a writer would wait for ever."""
    ref = holdfast.put("x")
    sent, number = pickle.dumps(ref), int(address_of(ref).rpartition("/")[2])
    del ref
    ours, theirs = os.pipe()
    os.dup2(ours, number)
    try:
        with pytest.raises(ObjectLost):
            holdfast.get(pickle.loads(sent))
    finally:
        for handle in {ours, theirs, number}:
            os.close(handle)


def test_an_object_at_the_number_of_another_is_not_taken_for_it() -> None:
    ref = holdfast.put("old")
    sent, address = pickle.dumps(ref), address_of(ref)
    del ref
    new = holdfast.put("new")
    assert address_of(new) == address, "the lowest free number is taken"

    with pytest.raises(ObjectLost):
        holdfast.get(pickle.loads(sent))


def test_many_threads_put_get_and_free_at_once() -> None:
    shared = holdfast.put(np.arange(1000))
    gate = threading.Barrier(8)

    def work(number: int) -> bool:
        gate.wait()
        for turn in range(50):
            mine = holdfast.put(np.full(100, number * 1000 + turn))
            again = pickle.loads(pickle.dumps(mine))
            del mine
            if holdfast.get(again)[0] != number * 1000 + turn:
                return False
            if holdfast.get(shared).sum() != 499_500:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


# ---------------------------------------------------------------------- bad input


def test_what_cannot_be_pickled_cannot_be_put() -> None:
    with pytest.raises(
        ConfigError, match="an object of type dict cannot be put: TypeError: cannot"
    ):
        holdfast.put({"x": threading.Lock()})


def test_a_reference_cannot_be_put() -> None:
    ref = holdfast.put(1)

    with pytest.raises(ConfigError, match="is already a reference"):
        holdfast.put(ref)


@pytest.mark.parametrize("refs", [1, "ref", None, {"a": 1}], ids=repr)
def test_only_references_can_be_got(refs: Any) -> None:
    with pytest.raises(ConfigError, match="neither an ObjectRef nor a list of them"):
        holdfast.get(refs)


def test_every_item_of_a_list_must_be_a_reference() -> None:
    ref = holdfast.put(1)

    with pytest.raises(ConfigError, match="item 1 of the list is not an ObjectRef: 7"):
        holdfast.get([ref, 7])  # type: ignore[list-item]


def test_too_many_objects_are_told_as_such() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    refs = [holdfast.put(0)]
    highest = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 5, limits[1]))
    try:
        with pytest.raises(StoreFull, match="objects need open files"):
            refs += [holdfast.put(number) for number in range(1000)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# ---------------------------------------------------------------------- large arguments


def test_only_large_values_are_shared() -> None:
    large, small = np.zeros(LARGE_BYTES // 8), np.zeros(10)
    lock = threading.Lock()
    ref = holdfast.put(1)
    given = {"large": large, "small": small, "lock": lock, "ref": ref, "none": None, "n": 1}

    sent = {name: share_if_large(value) for name, value in given.items()}

    assert isinstance(sent["large"], Shared)
    assert all(sent[name] is given[name] for name in given if name != "large")
    got = unshared(pickle.loads(pickle.dumps({**sent, "lock": None})))
    np.testing.assert_array_equal(got["large"], large)
    assert got["ref"] == ref
