"""How low searches get: `python search_quality.py SIDE LANDSCAPE TRIALS FIRST_SEED SEEDS`.

Prints the regret of every seed as a list in JSON: how far the best of its trials is from the lowest
value that there is. One trial at a time, each with the outcome of all before it. Each side is what
its library does unless it is told otherwise.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.landscapes import LANDSCAPES, Landscape

Search = Callable[[Landscape, int, int], list[float]]


def holdfast_search(make: Callable[[int], Any]) -> Search:
    def search(landscape: Landscape, trials: int, seed: int) -> list[float]:
        from holdfast.tune import uniform
        from holdfast.tune.search import Proposal, SearchPlan

        space = {name: uniform(*bounds) for name, bounds in landscape.bounds.items()}
        searcher = make(seed)
        learns = {"metric": "loss", "mode": "min"} if hasattr(searcher, "set_state") else {}
        plan = SearchPlan(searcher, space, num_samples=trials, **learns)
        values = []
        while isinstance(proposal := plan.next(), Proposal):
            values.append(landscape.function(proposal.config))
            told = {"loss": values[-1], "training_iteration": 1}
            plan.on_complete(proposal.trial_id, told)
        return values

    return search


def holdfast_random(seed: int) -> Any:
    from holdfast.tune.search import BasicVariantGenerator

    return BasicVariantGenerator(random_state=seed)


def holdfast_hyperopt(seed: int) -> Any:
    from holdfast.tune.search.hyperopt import HyperOptSearch

    return HyperOptSearch(random_state_seed=seed)


def holdfast_optuna(seed: int) -> Any:
    from holdfast.tune.search.optuna import OptunaSearch

    return OptunaSearch(seed=seed)


def holdfast_bohb(seed: int) -> Any:
    from holdfast.tune.search.bohb import TuneBOHB

    return TuneBOHB(seed=seed)


def optuna_tpe(landscape: Landscape, trials: int, seed: int) -> list[float]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))

    def objective(trial: Any) -> float:
        config = {name: trial.suggest_float(name, *at) for name, at in landscape.bounds.items()}
        return landscape.function(config)

    study.optimize(objective, n_trials=trials)
    return [trial.value or 0.0 for trial in study.trials]


def hyperopt_tpe(landscape: Landscape, trials: int, seed: int) -> list[float]:
    import hyperopt
    import numpy as np

    space = {name: hyperopt.hp.uniform(name, *at) for name, at in landscape.bounds.items()}
    record = hyperopt.Trials()
    hyperopt.fmin(
        landscape.function,
        space,
        algo=hyperopt.tpe.suggest,
        max_evals=trials,
        trials=record,
        rstate=np.random.default_rng(seed),
        show_progressbar=False,
        verbose=False,
    )
    return [float(loss) for loss in record.losses()]


def hpbandster_bohb(landscape: Landscape, trials: int, seed: int) -> list[float]:
    """Return what BOHB's own generator of configs comes to; all trials have one budget."""
    import ConfigSpace
    import numpy as np
    from hpbandster.optimizers.config_generators.bohb import BOHB

    np.random.seed(seed)  # it draws from there
    random.seed(seed)
    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for name, at in landscape.bounds.items():
        space.add(ConfigSpace.UniformFloatHyperparameter(name, *at))
    generator, values = BOHB(configspace=space), []
    for number in range(trials):
        config, _ = generator.get_config(budget=1.0)
        values.append(landscape.function(config))
        told: dict[str, Any] = {"kwargs": {"config": config, "budget": 1.0}, "exception": None}
        told |= {"result": {"loss": values[-1]}, "id": (0, 0, number)}
        generator.new_result(SimpleNamespace(**told))
    return values


SIDES: dict[str, Search] = {
    "holdfast-random": holdfast_search(holdfast_random),
    "holdfast-hyperopt": holdfast_search(holdfast_hyperopt),
    "holdfast-optuna": holdfast_search(holdfast_optuna),
    "holdfast-bohb": holdfast_search(holdfast_bohb),
    "optuna": optuna_tpe,
    "hyperopt": hyperopt_tpe,
    "hpbandster": hpbandster_bohb,
}


def main(side: str, name: str, trials: str, first: str, seeds: str) -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    landscape = LANDSCAPES[name]
    found = []
    for seed in range(int(first), int(first) + int(seeds)):
        values = SIDES[side](landscape, int(trials), seed)
        assert len(values) == int(trials), f"{side} has tried {len(values)} of {trials}"
        found.append(min(values) - landscape.lowest)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
