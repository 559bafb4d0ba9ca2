"""What runs inside trials may use of the nodes of their study."""

from __future__ import annotations

from holdfast.core.placement import Demand, Node
from holdfast.core.study.offers import Claim, Offer, claimed, granted, offered

NODE = Node("n", {"CPU": 2.0, "memory": 9.0, "GPU": 4.0, "licence": 1.0}, ("0", "1", "2", "3"))
GPU = Demand(each={"GPU": 1.0})


def test_a_trial_that_reserved_nothing_counted_is_offered_everything() -> None:
    offer = offered([NODE], [("n", {"CPU": 1.0})], {}, "folder")

    assert offer == Offer((NODE,), frozenset(), "folder")


def test_a_trial_that_reserved_gpus_is_offered_these_alone() -> None:
    offer = offered(
        [NODE], [("n", {}), ("n", {"GPU": 1.0}), ("n", {"GPU": 1.0})], {"n": ("1", "2")}, "f"
    )

    [node] = offer.nodes
    assert node.gpus == ("1", "2") and node.room["GPU"] == 2.0
    assert node.room["licence"] == 1.0
    assert offer.own == {"GPU"}


def test_a_run_takes_gpus_that_no_other_has() -> None:
    offer = offered([NODE], [("n", {"CPU": 1.0})], {}, "folder")
    others = [Claim("n", {"GPU": 1.0}, ("0",)), Claim("n", {"GPU": 1.0}, ("2",))]

    claims = claimed(offer, others, GPU, 1, 2)

    assert claims == [Claim("n", {"GPU": 2.0}, ("1", "3"))]
    [node] = granted(offer, claims or [])
    assert node.gpus == ("1", "3") and node.room["GPU"] == 2.0


def test_a_run_takes_as_many_as_it_can_use_and_no_fewer_than_it_needs() -> None:
    offer = offered([NODE], [], {}, "folder")
    others = [Claim("n", {"GPU": 3.0}, ("0", "1", "2"))]

    assert claimed(offer, others, GPU, 1, 4) == [Claim("n", {"GPU": 1.0}, ("3",))]
    assert claimed(offer, others, GPU, 2, 4) is None


def test_runs_do_not_share_a_gpu_even_if_they_need_a_part_of_it() -> None:
    offer = offered([NODE], [], {}, "folder")
    half = Demand(each={"GPU": 0.5})

    first = claimed(offer, [], half, 3, 3)
    assert first == [Claim("n", {"GPU": 1.5}, ("0", "1"))]

    assert claimed(offer, first, half, 1, 1) == [Claim("n", {"GPU": 0.5}, ("2",))]


def test_other_resources_are_counted_too() -> None:
    offer = offered([NODE], [], {}, "folder")
    demand = Demand(each={"licence": 1.0})

    first = claimed(offer, [], demand, 1, 1)

    assert first is not None and claimed(offer, first, demand, 1, 1) is None


def test_what_a_trial_reserved_is_not_taken_by_claims_of_others() -> None:
    offer = offered([NODE], [("n", {"GPU": 1.0})], {"n": ("1",)}, "folder")
    others = [Claim("n", {"GPU": 4.0, "licence": 0.5}, ("0", "1", "2", "3"))]

    assert claimed(offer, others, GPU, 1, 1) == [Claim("n", {"GPU": 1.0}, ("1",))]
