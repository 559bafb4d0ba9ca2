"""Workers that use more memory than there is: killed by the kernel, or refused by it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.engine.local.memory_kills import counter_files
from tests.faults.campaign.conftest import STEPS, Campaign
from tests.faults.campaign.deaths import AFTER, BEFORE, INTO, LAUNCH, MIB, Death
from tests.faults.campaign.test_worker_kills import card_of, is_told
from tests.patience import pause

pytestmark = pytest.mark.slow

LIMIT = 1024 * MIB  # plenty for a driver and two workers with torch, if none of them eats


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path | None]:
    """Make a memory cgroup inside our own; None where that cannot be done."""
    own = counter_files(
        Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    )
    folder = own[0].parent / f"holdfast-test-{secrets.token_hex(4)}" if own else None
    try:
        if folder is not None:
            folder.mkdir()
    except OSError:
        folder = None
    if folder is None:
        yield None
        return
    kinds = [folder / "memory.limit_in_bytes", folder / "memory.max"]  # of the older and newer kind
    settings = [one for one in kinds if one.is_file()]
    try:
        for setting in settings:
            setting.write_text(str(limit))
        yield folder if settings else None
    finally:
        while (folder / "cgroup.procs").read_text():
            pause()
        folder.rmdir()


@pytest.mark.req("T-039")
def test_workers_that_the_kernel_kills_for_their_memory_cost_no_bit_and_are_known_to_be(
    torch_run: Campaign, undisturbed: str
) -> None:
    """Where no cgroup can be made they may not have more memory, which ends them as well."""
    moments = [(LAUNCH, (0,)), (BEFORE, (1,)), (INTO, (0,)), (AFTER, (1,)), (BEFORE, (0, 1))]
    with memory_cgroup(LIMIT) as cgroup:
        way, said = ("eats", "killed for using too much memory")
        if cgroup is None:
            way, said = ("eats what it may", "MemoryError")
        deaths = [Death(way, moment, ranks, lead=1) for moment, ranks in moments]
        enter = f"echo $$ > {cgroup}/cgroup.procs; " if cgroup is not None else ""

        printed = torch_run.finish(
            steps=STEPS,
            deaths=[one.to_data() for one in deaths],
            through=("sh", "-c", f'{enter}exec "$@"', "sh"),
        )

    assert printed["weights"] == undisturbed
    assert len(torch_run.noted("dies")) == sum(len(death.ranks) for death in deaths)
    for attempt in range(1, len(deaths) + 1):
        assert is_told(card_of(torch_run, attempt), said)
    torch_run.must_be_whole(STEPS)


@pytest.mark.req("T-039")
def test_workers_that_get_no_more_memory_cost_no_bit(torch_run: Campaign, undisturbed: str) -> None:
    """Not a page is left to them, not even to say why they end."""
    ways = ("eats what it may", "eats what it may with torch")
    moments = [(LAUNCH, (1,)), (BEFORE, (0,)), (INTO, (1,)), (AFTER, (0,)), (BEFORE, (0, 1))]
    deaths = [Death(way, moment, ranks, lead=1) for way in ways for moment, ranks in moments]

    printed = torch_run.finish(steps=STEPS, deaths=[one.to_data() for one in deaths])

    assert printed["weights"] == undisturbed
    assert len(torch_run.noted("dies")) == sum(len(death.ranks) for death in deaths)
    for attempt, death in enumerate(deaths, 1):
        assert is_told(card_of(torch_run, attempt), "raised"), death
    torch_run.must_be_whole(STEPS)
