"""How fast cables may be for this machine to emulate a network faithfully.

Trials of greedy flows at rates of 1, 2, 3, 5, 7, 10, 20, 30 ... Mbit/s, each judged like any other
trial (`verdict`): first in large steps until one is invalid, then in between. What is found has to
be valid some times more, else the next smaller rate has to be. That is the edge, where nine trials
of ten are valid while nothing else happens; the rate to measure at is a step below.

The edge is kept in the user's cache, for this network, routing, plane, kernel and machine.
"""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.files import output_folder
from topos.base.errors import PillarboxError, require
from topos.base.spec import parse

if TYPE_CHECKING:
    from experiments.trials.plans.experiment import System
    from experiments.trials.runs.greedy import Tried

SCALE_MBIT = (*(float(m * 10**e) for e in range(4) for m in (1, 2, 3, 5, 7)), 10_000.0)
START_MBIT = 10.0
STRIDE = 2  # on the scale: each step is 2 to 2.5 times the last
TRIES = 2  # at a rate, before it is given up: a machine may hiccup
# Valid trials at the rate that is found, and others in between: a rate at which half of the trials
# are valid passes one time in nine.
CONFIRMATIONS, HICCUPS = 5, 1
FILE = "rates.json"

Say = Callable[[str], object]


def calibrated_rate(
    system: System,  # the network, and how it runs; its rate means nothing here
    say: Say = lambda _: None,  # called with what is done, a line at a time
    *,
    again: bool = False,  # measure even where the rate is known from before
    cache: Path | None = None,  # where rates are kept; the user's cache by default
) -> float:
    """Return the rate at which a system is emulated faithfully on this machine, in Mbit/s."""
    return step_below(_edge(system, say, again, (cache or user_cache()) / FILE))


def _edge(system: System, say: Say, again: bool, file: Path) -> float:
    """Return the largest rate at which trials are valid, known or measured."""
    key = known_as(system)
    if key and not again:
        known = _read(file).get(key)
        if known:
            say(f"{system.network}: valid up to {known:g} Mbit/s, as found before on this machine")
            return float(known)
    # Flows that are greedy know no collective operation, and no load.
    plain = replace(system, algorithm="", at_load=None)
    rate_mbit = largest(lambda rate: _tried(replace(plain, rate_mbit=rate), say), say)
    say(f"{system.network}: valid up to {rate_mbit:g} Mbit/s")
    if key:
        _keep(file, key, rate_mbit)
    return rate_mbit


def largest(
    try_at: Callable[[float], Tried],  # runs a trial at a rate
    say: Say = lambda _: None,  # called with why a rate was given up
) -> float:
    """Return the largest rate of the scale at which trials are valid."""
    reasons: tuple[str, ...] = ()

    def good(at: int, tries: int = TRIES) -> bool:
        nonlocal reasons
        for _ in range(tries):
            verdict = try_at(SCALE_MBIT[at]).verdict
            if verdict.valid:
                return True
            reasons = verdict.reasons
        return False

    low, high = _bracket(good)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    while low >= 0 and not confirmed(partial(good, low, 1), CONFIRMATIONS):
        say(f"{SCALE_MBIT[low]:g} Mbit/s is not valid again and again")
        low -= 1
    require(
        low >= 0,
        f"this machine cannot emulate this network faithfully at {SCALE_MBIT[0]:g} Mbit/s: "
        f"{'; '.join(reasons)}; end what else runs on it, or choose a smaller network",
    )
    return SCALE_MBIT[low]


def step_below(rate_mbit: float) -> float:
    """Return the next smaller rate of the scale, the smallest for itself.

    >>> step_below(500.0), step_below(1.0)
    (300.0, 1.0)
    """
    return max((rate for rate in SCALE_MBIT if rate < rate_mbit), default=SCALE_MBIT[0])


def confirmed(valid: Callable[[], bool], times: int) -> bool:
    """Tell whether trials are valid so many times, but for a hiccup."""
    found = [0, 0]
    while found[True] < times and found[False] <= HICCUPS:
        found[valid()] += 1
    return found[True] == times


def _bracket(good: Callable[[int], bool]) -> tuple[int, int]:
    """Return two places on the scale: one that is good, and one above it that is not.

    They may be one below and one above the scale.
    """
    at = SCALE_MBIT.index(START_MBIT)
    if good(at):
        while at < len(SCALE_MBIT) - 1:
            above = min(at + STRIDE, len(SCALE_MBIT) - 1)
            if not good(above):
                return at, above
            at = above
        return at, len(SCALE_MBIT)
    while at > 0:
        below = max(at - STRIDE, 0)
        if good(below):
            return below, at
        at = below
    return -1, 0


def _tried(system: System, say: Say) -> Tried:
    from experiments.trials.runs.greedy import tried

    found = tried(system)
    if found.verdict.valid:
        say(f"{system.rate_mbit:g} Mbit/s: valid, {found.goodput_bps / 1e6:.4g} Mbit/s of goodput")
    else:
        say(f"{system.rate_mbit:g} Mbit/s: not valid: {found.verdict.reasons[0]}")
    return found


# -- what is known from before -----------------------------------------------------------------


def known_as(system: System) -> str:
    """Return under which words a rate is kept; empty for a routing in a file, which may change."""
    from experiments.emulation.defaults import chosen_plane, usual_routing
    from hosts.base.load import router_for

    topology = parse(system.network)
    routing, plane = system.routing or usual_routing(topology), system.plane
    if topology.ports > 1:  # else switches do the work
        router_for(topology, routing)  # refuses what there is not, before anything runs
        plane = chosen_plane(plane)
    if routing.endswith(".py"):
        return ""
    words = [topology.spec, routing, plane, system.timers, f"mtu {system.mtu}"]
    words += [f"{name} {value}" for name, value in sorted(system.options.items())]
    if (system.queue, system.queue_length) != ("droptail", ""):
        words.append(f"queue {system.queue} {system.queue_length}".strip())
    impairments = {"delay": system.delay, "loss": system.loss}
    words += [f"{what} {value}" for what, value in impairments.items() if value]
    machine = f"{platform.node()} {platform.release()} {os.cpu_count()} processors"
    return ", ".join([*words, machine])


def user_cache() -> Path:
    """Return the folder for what can be found again, of the user who called sudo."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named, "pillarbox")
    user = os.environ.get("SUDO_UID", "")
    try:
        home = pwd.getpwuid(int(user)).pw_dir if user.isdecimal() else str(Path.home())
    except KeyError:  # a user without an account
        home = str(Path.home())
    return Path(home, ".cache", "pillarbox")


def _read(file: Path) -> dict[str, Any]:
    """Return what is known; what cannot be read is not."""
    from experiments.trials.runs.store import read_json

    try:
        known = read_json(file)
    except PillarboxError:
        return {}
    return known if isinstance(known, dict) else {}


def _keep(file: Path, key: str, rate_mbit: float) -> None:
    from experiments.trials.runs.store import write_json

    output_folder(file.parent)
    write_json(file, _read(file) | {key: rate_mbit})
