"""The error for a run that another driver holds: who it is, and whether waiting for it helps."""

from __future__ import annotations

from holdfast.errors import RunHeld
from holdfast.journal.owner import Owner, this_process


def held_error(
    run: str, owner: Owner, *, age_s: float, left_s: float, is_silent: bool, has_beaten: bool
) -> RunHeld:
    """Return what to raise for a run whose holder is not proven dead.

    Args:
        run: The run, for people.
        owner: Who holds it.
        age_s: How long ago its lease was renewed.
        left_s: How long until the lease runs out, if it is not renewed.
        is_silent: Whether a holder that lives would have renewed its lease by now.
        has_beaten: Whether it was seen to renew its lease while we looked.
    """
    me = this_process()
    message = f"{run} is held by {owner}, lease renewed {max(0.0, age_s):.0f} s ago"
    runs_out = f"in {max(0.0, left_s):.0f} s"
    stop = f"stop it (kill {owner.pid} on {owner.host} ends it in good order)"
    if (owner.place, owner.pid, owner.started) == (me.place, me.pid, me.started):
        return RunHeld(
            f"{message}: that is this very process",
            hint="let the fit() end that runs in another thread of it, or choose another name",
        )
    if is_silent and not has_beaten:
        return RunHeld(
            f"{message}: it is silent",
            hint=f"give the same command again {runs_out}: its lease has run out then, unless it"
            " speaks up before",
        )
    if has_beaten or owner.place == me.place:  # there, the death of a process is seen
        return RunHeld(
            f"{message}: it lives",
            hint=f"{stop}, or choose another name; while it lives it renews its lease, so that"
            " waiting helps only if it ends by itself",
        )
    return RunHeld(
        message,
        hint=f"{stop}, or choose another name; if it is dead already, its lease runs out"
        f" {runs_out}",
    )
