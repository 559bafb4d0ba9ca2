"""Assigns GPUs to the trials of a study, and offers them the rest of the nodes.

A GPU belongs to one trial, unless trials asked for parts of one. What runs inside trials may use is
decided in `core.study.offers`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from holdfast.core.placement import Node
from holdfast.core.study.offers import Offer, is_counted, offered
from holdfast.engine.claims import ClaimsFolder
from holdfast.worker.job import Job

_SLACK = 1e-9  # amounts are sums of fractions such as 0.1


class TrialOffers:
    """What the trials of one study are offered."""

    def __init__(self) -> None:
        self._gpus = TrialGpus()
        self._claims: ClaimsFolder | None = None  # made when there is something to claim

    def offer(
        self,
        trial: str,
        reserved: Sequence[tuple[str, Mapping[str, float]]],
        nodes: Sequence[Node],
        running: Collection[str],
    ) -> Offer:
        """Return what a trial may use, given what it has reserved and who else runs."""
        if self._claims is None and any(is_counted(name) for node in nodes for name in node.room):
            self._claims = ClaimsFolder()
        gpus = self._gpus.allot(trial, reserved, nodes, running)
        return offered(nodes, reserved, gpus, None if self._claims is None else self._claims.path)

    def environment(self, job: Job) -> dict[str, str]:
        """Return the variable that names a trial's GPUs to its process, if it reserved any."""
        offer = job.offer
        if offer is None or "GPU" not in offer.own:
            return {}
        here = next((node.gpus for node in offer.nodes if node.name == job.place.node), ())
        return {"CUDA_VISIBLE_DEVICES": ",".join(here)}

    def close(self) -> None:
        """Withdraw all offers."""
        if self._claims is not None:
            self._claims.close()
            self._claims = None


class TrialGpus:
    """The GPUs of the trials that run."""

    def __init__(self) -> None:
        self._shares: dict[str, list[tuple[str, str, float]]] = {}  # by trial: node, GPU, how much

    def allot(
        self,
        trial: str,
        reserved: Sequence[tuple[str, Mapping[str, float]]],
        nodes: Sequence[Node],
        running: Collection[str],
    ) -> dict[str, tuple[str, ...]]:
        """Return the GPUs of a trial by node, given what it has reserved on which.

        `running` are the trials that keep theirs. A trial gets the GPUs it had before, if they are
        still free.
        """
        before = {(node, gpu) for node, gpu, _ in self._shares.get(trial, ())}
        self._shares = {name: has for name, has in self._shares.items() if name in running}
        used: dict[tuple[str, str], float] = {}
        for shares in self._shares.values():
            for node, gpu, amount in shares:
                used[node, gpu] = used.get((node, gpu), 0.0) + amount
        mine: list[tuple[str, str, float]] = []
        names = {node.name: node.gpus for node in nodes}
        for node, need in reserved:
            for amount in _pieces(need.get("GPU", 0.0)):
                if not names.get(node):
                    continue
                gpu = _chosen(names[node], amount, before, used, node)
                used[node, gpu] = used.get((node, gpu), 0.0) + amount
                mine.append((node, gpu, amount))
        if mine:
            self._shares[trial] = mine
        gpus: dict[str, tuple[str, ...]] = {}
        for node, gpu, _ in mine:
            if gpu not in gpus.get(node, ()):
                gpus[node] = (*gpus.get(node, ()), gpu)
        return gpus


def _chosen(
    gpus: Sequence[str],
    amount: float,
    before: Collection[tuple[str, str]],
    used: Mapping[tuple[str, str], float],
    node: str,
) -> str:
    """Return the GPU that a trial gets, or gets a part of.

    Of those with room the fullest, so that others stay whole. If none has room, because what is
    free is in pieces, the emptiest is shared: a trial that has reserved a part must have one.
    """
    fitting = [gpu for gpu in gpus if used.get((node, gpu), 0.0) + amount <= 1 + _SLACK]
    if not fitting:
        return min(gpus, key=lambda gpu: used.get((node, gpu), 0.0))
    return min(fitting, key=partial(_rank, before, used, node))


def _rank(
    before: Collection[tuple[str, str]], used: Mapping[tuple[str, str], float], node: str, gpu: str
) -> tuple[bool, float]:
    """Return how little a GPU suits: one that the trial had before is best, then the fullest."""
    return (node, gpu) not in before, -used.get((node, gpu), 0.0)


def _pieces(amount: float) -> list[float]:
    """Return whole GPUs, and then the part of one that is left."""
    whole = int(amount + _SLACK)
    part = amount - whole
    return [1.0] * whole + ([part] if part > _SLACK else [])
