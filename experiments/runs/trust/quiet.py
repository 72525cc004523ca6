"""Waiting for a quiet machine before a trial (`pillarbox run --when-quiet`)."""

from __future__ import annotations

import time
from collections.abc import Callable

from pillarbox.experiments.runs.trust.machine import Machine, between, machine
from pillarbox.experiments.runs.trust.verdict import MOST_FOREIGN
from pillarbox.topos.base.errors import PillarboxError

LOOK_S = 0.5  # Length of one sample of the processor load, in seconds.
LOOKS = 4  # Number of consecutive samples for which the machine has to be quiet.
SAY_EVERY_S = 10.0  # Interval between two progress messages, in seconds.
MOST_WAIT_S = 600.0  # Upper bound for the wait before one trial, in seconds.


def wait_until_quiet(
    say: Callable[[str], object],
    look: Callable[[], Machine] = machine,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Wait until programs take at most MOST_FOREIGN of the processors, for two seconds.

    Parameters
    ----------
    say : callable
        Receiver of progress messages, called with one sentence at a time.
    look, sleep : callable
        Function that returns the machine's counters, and function that sleeps (for tests).

    Raises
    ------
    PillarboxError
        If the machine is not quiet within MOST_WAIT_S.
    """
    first, quiet, said_s = look(), 0, -SAY_EVERY_S
    begin_s = first.at_s
    while quiet < LOOKS:
        sleep(LOOK_S)
        last = look()
        busy = 1.0 - between(first, last).idle
        quiet = quiet + 1 if busy <= MOST_FOREIGN else 0
        waited_s, first = last.at_s - begin_s, last
        if quiet:
            continue
        if waited_s >= MOST_WAIT_S:
            raise PillarboxError(
                f"the machine was not quiet within {MOST_WAIT_S / 60:.0f} minutes: programs take "
                f"{busy:.0%} of the processors (limit: {MOST_FOREIGN:.0%}); end them, or run "
                "without --when-quiet"
            )
        if waited_s - said_s >= SAY_EVERY_S:
            said_s = waited_s
            say(f"waiting for a quiet machine: programs take {busy:.0%} of the processors")
