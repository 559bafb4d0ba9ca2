"""GPUs of trials that reserve some."""

from __future__ import annotations

from holdfast.control.study.offers import TrialGpus
from holdfast.core.placement import Node

NODES = [Node("n", {"GPU": 3.0}, ("0", "1", "2"))]


def test_no_two_trials_have_the_same_gpu() -> None:
    gpus = TrialGpus()

    assert gpus.allot("a", [("n", {"GPU": 2.0})], NODES, set()) == {"n": ("0", "1")}
    assert gpus.allot("b", [("n", {"GPU": 1.0})], NODES, {"a"}) == {"n": ("2",)}


def test_a_gpu_is_free_again_when_its_trial_does_not_run() -> None:
    gpus = TrialGpus()
    gpus.allot("a", [("n", {"GPU": 3.0})], NODES, set())

    assert gpus.allot("b", [("n", {"GPU": 1.0})], NODES, set()) == {"n": ("0",)}


def test_parts_of_a_gpu_are_put_together_and_leave_others_whole() -> None:
    gpus = TrialGpus()
    half = [("n", {"GPU": 0.5})]

    assert gpus.allot("a", half, NODES, set()) == {"n": ("0",)}
    assert gpus.allot("b", half, NODES, {"a"}) == {"n": ("0",)}
    assert gpus.allot("c", half, NODES, {"a", "b"}) == {"n": ("1",)}
    assert gpus.allot("d", [("n", {"GPU": 1.0})], NODES, {"a", "b", "c"}) == {"n": ("2",)}


def test_a_trial_that_reserved_none_has_none() -> None:
    assert TrialGpus().allot("a", [("n", {"CPU": 1.0})], NODES, set()) == {}


def test_a_trial_that_starts_again_keeps_its_gpu_if_it_can() -> None:
    gpus = TrialGpus()
    gpus.allot("a", [("n", {"GPU": 1.0})], NODES, set())
    gpus.allot("b", [("n", {"GPU": 1.0})], NODES, {"a"})

    assert gpus.allot("b", [("n", {"GPU": 1.0})], NODES, set()) == {"n": ("1",)}


def test_a_trial_that_reserved_a_part_has_a_gpu_also_if_no_one_has_that_much_left() -> None:
    gpus = TrialGpus()
    part = [("n", {"GPU": 0.6})]
    given = [gpus.allot(name, part, NODES, set("abc")) for name in "abcd"]

    assert given == [{"n": ("0",)}, {"n": ("1",)}, {"n": ("2",)}, {"n": ("0",)}]
