"""How good searches are beside their peers: `python -m bench.quality [--seeds 80] [--publish]`.

Regret: how far the best of so many trials is from the lowest value of a function, for every seed.
Unlike the questions of `python -m bench` this does not depend on how fast the machine is: the same
seeds and versions give the same figures. A seed is luck, though, so medians come with the interval
they are in.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.landscapes import LANDSCAPES
from bench.report import publish

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "quality.md"
SCRIPT = Path(__file__).parent / "scripts" / "search_quality.py"
PEERS = ROOT / ".venv-quality" / "bin" / "python"
HINT = "python3 tools/environment.py .venv-quality quality"
SEEDS, TRIALS = 80, 60
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Side:
    """A way to search.

    Attributes:
        package: Whose it is, and what must be installed for it.
        is_peer: Whether it runs in the environment of the peers.
    """

    name: str
    shown: str
    package: str
    is_peer: bool = False


SIDES = (
    Side("holdfast-random", "random", "holdfast"),
    Side("holdfast-hyperopt", "`HyperOptSearch`", "holdfast"),
    Side("hyperopt", "HyperOpt, `tpe.suggest`", "hyperopt", is_peer=True),
    Side("holdfast-optuna", "`OptunaSearch`", "holdfast"),
    Side("optuna", "Optuna, `TPESampler`", "optuna", is_peer=True),
    Side("holdfast-bohb", "`TuneBOHB`", "holdfast"),
    Side("hpbandster", "HpBandSter, BOHB's original", "hpbandster", is_peer=True),
)


@dataclass(frozen=True)
class Found:
    """The regrets of a side on a landscape, one for every seed, in ascending order."""

    side: Side
    landscape: str
    version: str
    regrets: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.regrets)

    def interval(self) -> tuple[float, float]:
        """Return where the median of all seeds is, as far as these tell."""
        low = rank_of_median(len(self.regrets))
        return self.regrets[low], self.regrets[-1 - low]

    def quarters(self) -> tuple[float, float]:
        """Return what a quarter of the seeds is below, and what a quarter is above."""
        at = len(self.regrets) // 4
        return self.regrets[at], self.regrets[-1 - at]


def rank_of_median(count: int) -> int:
    """Return how many values to leave out at each end, so that the median is between the others.

    With `CONFIDENCE`, whatever the values are: each is below the median as a coin falls.
    """
    left, below = (1 - CONFIDENCE) / 2, 0.0
    for rank in range(count // 2):
        below += math.comb(count, rank) / 2**count
        if below > left:
            return max(rank - 1, 0)
    return max(count // 2 - 1, 0)


def measure(side: Side, landscape: str, trials: int, seeds: int, first: int) -> Found:
    """Return how a side does; `OSError` or `CalledProcessError` if it cannot be asked."""
    python = str(PEERS) if side.is_peer else sys.executable
    asked = [side.name, landscape, str(trials), str(first), str(seeds)]
    ran = subprocess.run(
        [python, str(SCRIPT), *asked], stdout=subprocess.PIPE, text=True, check=True
    )
    regrets = sorted(json.loads(ran.stdout.splitlines()[-1]))
    return Found(side, landscape, version_of(side, python), tuple(regrets))


def version_of(side: Side, python: str) -> str:
    if not side.is_peer:
        return importlib.metadata.version(side.package)
    asks = f"from importlib.metadata import version; print(version({side.package!r}))"
    ran = subprocess.run([python, "-c", asks], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def as_markdown(found: Sequence[Found], command: str) -> str:
    """Return a table for every landscape, and the command that made them."""
    parts = [f"Made by `{command}`."]
    for name, landscape in LANDSCAPES.items():
        rows = [one for one in found if one.landscape == name]
        if not rows:
            continue
        lines = [
            f"**{landscape.name}**, {len(landscape.bounds)} values, lowest {landscape.lowest:g}",
            "",
            "| search | median regret | 95 % interval of the median | middle half | all seeds |",
            "|---|--:|--:|--:|--:|",
        ]
        for one in rows:
            whose = one.side.shown if not one.side.is_peer else f"{one.side.shown} {one.version}"
            spans = [one.interval(), one.quarters(), (one.regrets[0], one.regrets[-1])]
            told = " | ".join(f"{low:.3f} to {high:.3f}" for low, high in spans)
            lines.append(f"| {whose} | {one.median:.3f} | {told} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each (default: %(default)s)")
    parser.add_argument("--only", nargs="*", choices=[side.name for side in SIDES], default=None)
    parser.add_argument("--publish", action="store_true", help=f"write the tables to {PAGE.name}")
    asked = parser.parse_args(given)
    if asked.seeds < 1 or asked.trials < 1:
        parser.error(f"--seeds={asked.seeds}, --trials={asked.trials}: there must be one at least")
    if asked.publish and asked.only is not None:
        parser.error("--publish writes whole tables; leave out --only")
    found, failed = [], dict[str, str]()
    for name in LANDSCAPES:
        for side in (
            SIDES if asked.only is None else [one for one in SIDES if one.name in asked.only]
        ):
            try:
                one = measure(side, name, asked.trials, asked.seeds, asked.first_seed)
            except (OSError, subprocess.CalledProcessError) as error:
                failed[side.name] = f"{side.name} cannot be asked: {error}"
                continue
            found.append(one)
            print(f"{name} {side.name}: {one.median:.3f}", flush=True)
    options = {"--seeds": (asked.seeds, SEEDS), "--trials": (asked.trials, TRIALS)}
    options |= {"--first-seed": (asked.first_seed, 0)}
    return report(found, failed, command_of(options), is_published=asked.publish)


def command_of(options: Mapping[str, tuple[int, int]]) -> str:
    more = "".join(f" {name} {given}" for name, (given, usual) in options.items() if given != usual)
    return f"python -m bench.quality{more} --publish"


def report(
    found: Sequence[Found], failed: Mapping[str, str], command: str, *, is_published: bool
) -> int:
    """Print the tables, or put them into the page; return the exit code."""
    table = as_markdown(found, command)
    print(f"\n{table}")
    for why in failed.values():
        print(f"{why}\n  Try: {HINT}", file=sys.stderr)
    if is_published and failed:
        print("nothing was published: a table has all sides", file=sys.stderr)
    elif is_published:
        publish(PAGE, {"quality": table}, "python -m bench.quality --publish")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
