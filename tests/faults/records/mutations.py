"""Records as an enemy would change them: odd values in the right places, sealed again.

Everything follows from a seed, so that a case is told by one number.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from typing import Any

from holdfast.storage.records import seal_body

COMMAND = ["touch", "canary-was-run"]
CODE = "open('canary-was-run', 'w')"


def made(path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"@made": {"class": path, "args": list(args), "kwargs": kwargs}}


_DEEP = re.compile(r'"deep-(list|dict)-(\d+)"')


def dumped(record: Any) -> bytes:
    """Return JSON; what is to be nested more deeply than Python likes is put in as text."""

    def deep(found: re.Match[str]) -> str:
        opening, closing = ("[", "]") if found[1] == "list" else ('{"a":', "}")
        return opening * int(found[2]) + "1" + closing * int(found[2])

    return _DEEP.sub(deep, json.dumps(record)).encode()


ATTACKS: list[Any] = [
    made("subprocess:check_call", COMMAND),
    made("subprocess:Popen", COMMAND),
    made("holdfast.engine.local.zygote_line:subprocess.check_call", COMMAND),
    made("os:system", " ".join(COMMAND)),
    made("posix:system", " ".join(COMMAND)),
    made("builtins:eval", CODE),
    made("builtins:exec", CODE),
    made("evil_at_rest:Scheduler"),
    made("holdfast.tune.search.variant_generator:Expression", CODE),
    made("holdfast.tune.schedulers.pbt_replay:PopulationBasedTrainingReplay", "/dev/zero"),
    made("holdfast.tune.schedulers.hyperband:HyperBandScheduler", max_t=10**18),
    made(
        "holdfast.tune.schedulers.hyperband:HyperBandScheduler",
        max_t=10**18,
        reduction_factor=1.0000001,
    ),
    made("holdfast.tune.schedulers.async_hyperband:AsyncHyperBandScheduler", brackets=10**9),
    made(
        "holdfast.tune.schedulers.async_hyperband:AsyncHyperBandScheduler",
        max_t=10**18,
        reduction_factor=1.0000001,
    ),
    made("holdfast.tune.schedulers.median_stopping_rule:MedianStoppingRule", x=1),
    made("holdfast.tune.stopper.trial_plateau:TrialPlateauStopper", "loss", num_results=10**12),
    made("holdfast.tune.stopper.experiment_plateau:ExperimentPlateauStopper", "loss", top=10**12),
    {"@import": "subprocess:check_call"},
    {"@import": "evil_at_rest:Scheduler"},
    {"@dataclass": {"class": "subprocess:Popen", "fields": {"args": COMMAND}}},
    {"@dataclass": {"class": "holdfast.api.config:FailureConfig", "fields": {"max_failures": {}}}},
    {"@dataclass": 7},
    {"@made": []},
    {"@made": {"class": None, "args": 1, "kwargs": []}},
    {"@tuple": 5},
    {"@pairs": [[[], 1]]},
    {"@checkpoint": "s3://nowhere/x"},
    {"@path": "\0"},
    {"eval": CODE},
    {"$float": "x"},
    {"$float": []},
    {"$tuple": 7},
    {"$dict": [[[], {}]]},
    {"$mark": [["x"]], "kind": []},
    {"$mark": 3},
    {"$domain": {"kind": "eval", "expression": CODE}},
]
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**18, -(10**18), 2**70, 10**400, 1.5, -0.0,
    1e308, -1e308, float("nan"), float("inf"), "", "x", "7", "\x1b]0;owned\x07\x1b[2J", "a\nb",
    "../../../../../../etc/passwd", "/etc/passwd", "/dev/zero", "..", ".", "a/../b", "a//b", "a\0b",
    "\ud800", "\u202e", "x" * 5000, "checkpoint_000000", [], {}, [[]], [None], {"": None},
    {"\0": "\0"}, [1, "x", None, {}], "deep-list-40", "deep-dict-40", "deep-dict-300",
    "deep-list-900", "deep-dict-900", "deep-list-100000", "deep-dict-3000",
    [0] * 2000, {str(i): i for i in range(500)},
]  # fmt: skip
KINDS = [
    "run_opened", "run_closed", "checkpoint_begun", "checkpoint_committed", "checkpoint_retired",
    "checkpoint_pinned", "litter_swept", "journal_damaged", "record_snapshot", "run",
    "run_snapshot", "study_opened", "study_extended", "study_stopped", "rooms_changed",
    "trials_archived", "study_state", "state_taken", "search_ended", "trial_added",
    "trial_started", "trial_not_started", "trial_result", "trial_checkpoint", "trial_exited",
]  # fmt: skip


def sealed(record: Any) -> bytes:
    """Return a record as a sealed line, whatever is in it; not as our own code would write it."""
    return seal_body(dumped(record)[:-1])


def mutated_line(line: bytes, chance: random.Random) -> bytes:
    """Return a sealed line that was changed, and in most cases sealed again."""
    if chance.random() < 0.08:
        return scratched(line, chance)
    record = json.loads(line)
    record.pop("~", None)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        record = mutated(record, chance)
    if not isinstance(record, dict) or not record:
        record = {"value": record}
    return sealed(record)


def mutated_json(text: bytes, chance: random.Random) -> bytes:
    """Return JSON without a seal that was changed."""
    if chance.random() < 0.2:
        return scratched(text, chance)
    return dumped(mutated(json.loads(text), chance))


def mutated(record: Any, chance: random.Random) -> Any:
    """Return a record in which something was changed somewhere."""
    root = {"": copy.deepcopy(record)}
    places = _places(root)
    inside, key = chance.choice(places[: 1 + int(len(places) * chance.random())])
    change = chance.choice(_CHANGES)
    change(inside, key, chance)
    return root.get("")


def _places(root: Any) -> list[tuple[Any, Any]]:
    found, waiting = [], [root]
    while waiting:
        inside = waiting.pop(0)
        entries = inside.items() if isinstance(inside, dict) else enumerate(inside)
        for key, value in entries:
            found.append((inside, key))
            if isinstance(value, dict | list):
                waiting.append(value)
    return found


def _replace(inside: Any, key: Any, chance: random.Random) -> None:
    inside[key] = copy.deepcopy(chance.choice(ODD))


def _attack(inside: Any, key: Any, chance: random.Random) -> None:
    inside[key] = copy.deepcopy(chance.choice(ATTACKS))


def _delete(inside: Any, key: Any, chance: random.Random) -> None:
    del inside[key]


def _wrap(inside: Any, key: Any, chance: random.Random) -> None:
    inside[key] = chance.choice([[inside[key]], {"a": inside[key]}, str(inside[key])])


def _add(inside: Any, key: Any, chance: random.Random) -> None:
    value = copy.deepcopy(chance.choice(ODD + ATTACKS))
    if isinstance(inside[key], dict):
        inside[key][chance.choice(["new", "", "format", "step", "@made", "$float"])] = value
    elif isinstance(inside[key], list):
        inside[key].append(value)
    else:
        inside[key] = value


def _repeat(inside: Any, key: Any, chance: random.Random) -> None:
    if isinstance(inside[key], list) and inside[key]:
        inside[key].append(copy.deepcopy(chance.choice(inside[key])))
    else:
        _replace(inside, key, chance)


def _number(inside: Any, key: Any, chance: random.Random) -> None:
    if isinstance(inside[key], int | float):
        inside[key] = chance.choice([-inside[key] - 1, inside[key] + 1, 10**18, -5, 0.5, 2**65])
    else:
        _replace(inside, key, chance)


_CHANGES: list[Callable[[Any, Any, random.Random], None]] = [
    _replace, _replace, _replace, _attack, _delete, _wrap, _add, _repeat, _number,
]  # fmt: skip


def scratched(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with a few changed, cut off, or doubled."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found)) if found else 0
        match chance.randrange(4):
            case 0:
                found[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[place:]
            case 2:
                found[place:place] = bytes(chance.randrange(256) for _ in range(8))
            case _:
                found += found[place:]
    return bytes(found)
