"""Resources of trials: a bundle of amounts per process, all reserved together or not at all."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.api.checks import is_number
from holdfast.core.names import shown
from holdfast.errors import ConfigError
from holdfast.tune.errors import NotRunnable

Bundle = dict[str, float]
_NAMES = {"cpu": "CPU", "gpu": "GPU", "extra_cpu": "CPU", "extra_gpu": "GPU"}
ATTRIBUTE = "_resources"  # set on a trainable by `with_resources`; Ray's name


class PlacementGroupFactory:
    """The resources of a trial: a bundle for the trainable's own process, then one per worker.

    Args:
        bundles: Amounts by resource. If the first is empty, the trainable itself needs nothing.
        strategy: How bundles may be spread over nodes.
    """

    def __init__(
        self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", *_: Any, **__: Any
    ) -> None:
        if not bundles or not all(isinstance(bundle, Mapping) for bundle in bundles):
            raise ConfigError(
                f"bundles={shown(bundles)}: must be a list of at least one dictionary of resources",
                hint="PlacementGroupFactory([{'CPU': 1}])",
            )
        self.bundles = [bundle_of(bundle) for bundle in bundles]
        self.strategy = strategy

    @property
    def head_bundle_is_empty(self) -> bool:
        """Whether the trainable itself needs nothing."""
        return not any(self.bundles[0].values())

    @property
    def required_resources(self) -> Bundle:
        """The sum of all bundles."""
        totals: Bundle = {}
        for bundle in self.bundles:
            for name, amount in bundle.items():
                totals[name] = totals.get(name, 0.0) + amount
        return totals

    def __call__(self) -> PlacementGroupFactory:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroupFactory) and self.bundles == other.bundles

    def __hash__(self) -> int:
        return hash(tuple(tuple(sorted(bundle.items())) for bundle in self.bundles))

    def __repr__(self) -> str:
        return f"PlacementGroupFactory({self.bundles}, strategy={self.strategy!r})"


def bundle_of(resources: Mapping[str, Any]) -> Bundle:
    """Return amounts by resource, under the names that nodes use."""
    bundle: Bundle = {}
    for name, amount in resources.items():
        if name in ("custom_resources", "resources") and isinstance(amount, Mapping):
            bundle |= bundle_of(amount)
            continue
        if not is_number(amount) or amount < 0:
            raise ConfigError(
                f"{name}={shown(amount)}: must be a number, 0 or more",
                hint="resources={'cpu': 1, 'gpu': 0.5}",
            )
        resource = _NAMES.get(name, name)
        bundle[resource] = bundle.get(resource, 0.0) + float(amount)
    return {name: amount for name, amount in bundle.items() if amount}


def bundles_of(wanted: Any, config: Mapping[str, Any]) -> list[Bundle]:
    """Return the bundles that a trial with `config` reserves; `wanted` is what the user gave."""
    if callable(wanted) and not isinstance(wanted, PlacementGroupFactory):
        wanted = wanted(dict(config))
    match wanted:
        case None:
            return [{"CPU": 1.0}]
        case PlacementGroupFactory():
            return [dict(bundle) for bundle in wanted.bundles]
        case Mapping():
            return [bundle_of(wanted)]
        case list() if all(isinstance(bundle, Mapping) for bundle in wanted):
            return [bundle_of(bundle) for bundle in wanted]
        case _:
            raise ConfigError(
                f"resources={shown(wanted)}: must be a dictionary, a PlacementGroupFactory, or a"
                " function of the config that returns one",
                hint="tune.with_resources(trainable, {'cpu': 2})",
            )


def with_resources(trainable: Any, resources: Any) -> Any:
    """Return a trainable whose trials reserve `resources`.

    Args:
        trainable: A function or a class.
        resources: A dictionary, a `PlacementGroupFactory`, or a function of the config.
    """
    if not callable(resources):
        bundles_of(resources, {})  # raises now if they are wrong
    if isinstance(trainable, type):
        request = resources if callable(resources) else lambda _: resources
        return type(trainable.__name__, (trainable,), {ATTRIBUTE: staticmethod(request)})
    if not callable(trainable):
        raise NotRunnable(f"{shown(trainable)} is neither a function nor a class that can be run")

    @functools.wraps(trainable)
    def run(config: dict[str, Any], **parameters: Any) -> Any:
        return trainable(config, **parameters)

    setattr(run, ATTRIBUTE, resources)
    return run
