"""Plays simulated runs: one again, or many."""

from __future__ import annotations

import sys
import time

import click

from tests.simulation.run import Report, shrunk, simulate
from tests.simulation.story import draw


@click.command()
@click.option("--seed", type=int, help="Play the run of this seed.")
@click.option("--seeds", help="Play the runs of many seeds, A-B, both included.")
@click.option("--story", "tells", is_flag=True, help="Tell what happens.")
@click.option("--without", default="", help="Leave out some faults, by number: 1,3.")
@click.option(
    "--shrink", is_flag=True, help="Leave out every fault that the problem can do without."
)
def main(*, seed: int | None, seeds: str | None, tells: bool, without: str, shrink: bool) -> None:
    """Play simulated runs; exit with 1 if something is wrong with one."""
    if (seed is None) == (seeds is None):
        raise click.UsageError("give --seed or --seeds")
    if seed is not None:
        left_out = [int(number) for number in without.split(",") if number]
        sys.exit(_play(seed, left_out, tells=tells, shrink=shrink))
    first, _, last = (seeds or "").partition("-")
    if not first.isdigit() or not (last or first).isdigit():
        raise click.BadParameter(f"{seeds!r} is not of the form A-B", param_hint="--seeds")
    sys.exit(_play_many(range(int(first), int(last or first) + 1)))


def _play(seed: int, without: list[int], *, tells: bool, shrink: bool) -> int:
    report = simulate(draw(seed), without=without)
    if shrink and report.problem is not None:
        report = shrunk(report)
    if tells:
        _tell(report)
    click.echo(report)
    return int(report.problem is not None)


def _tell(report: Report) -> None:
    for line in report.story.lines(report.without):
        click.echo(line)
    for when, line in report.lines:
        click.echo(f"{when:10.3f}  {line}")


def _play_many(seeds: range) -> int:
    began, wrong = time.monotonic(), 0
    for seed in seeds:
        report = simulate(seed)
        if report.problem is not None:
            wrong += 1
            click.echo(report)
    click.echo(f"{len(seeds)} runs, {wrong} wrong, {time.monotonic() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    main()
