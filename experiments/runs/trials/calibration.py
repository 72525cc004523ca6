"""Calibration: the highest cable rate at which this machine emulates a network faithfully.

Calibration runs trials of greedy flows at rates of 1, 2, 3, 5, 7, 10, 20, 30 ... Mbit/s, each
judged like any other trial (`verdict`): first in large steps until a trial is invalid, then by
bisection. The highest valid rate must be confirmed by further trials, otherwise the next lower rate
is tried. At this highest rate nine trials of ten are valid on an idle machine; experiments use the
rate one step below.

The highest rate is saved in the user's cache, by network, routing, plane, kernel and machine.
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

from pillarbox.experiments.base.files import output_folder
from pillarbox.hosts.base.file_ownership import is_machine_root
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from pillarbox.experiments.runs.plans.experiment import System
    from pillarbox.experiments.runs.trials.greedy import Tried

# Cable rates that the calibration of this machine tries, in Mbit/s.
SCALE_MBIT = (*(float(m * 10**e) for e in range(4) for m in (1, 2, 3, 5, 7)), 10_000.0)
START_MBIT = 10.0
STRIDE = 2  # Step in SCALE_MBIT of the first search: each rate is 2 to 2.5 times the last.
TRIES = 2  # Trials at a rate before it counts as invalid, as short disturbances happen.
# Number of valid trials that confirm a rate, and of invalid trials that are allowed meanwhile: a
# rate with half of its trials valid passes one time in nine.
CONFIRMATIONS, HICCUPS = 5, 1
FILE = "rates.json"

Say = Callable[[str], object]


def calibrated_rate(
    system: System,  # Network and its settings; its rate is ignored.
    say: Say = lambda _: None,  # Receiver of progress messages, one line at a time.
    *,
    again: bool = False,  # True measures again even if the cache has a rate.
    cache: Path | None = None,  # Folder of calibrated rates; the user's cache by default.
) -> float:
    """Return the rate at which a system is emulated faithfully on this machine, in Mbit/s."""
    return step_below(_highest_rate(system, say, again, (cache or user_cache()) / FILE))


def _highest_rate(system: System, say: Say, again: bool, file: Path) -> float:
    """Return the highest rate in Mbit/s with valid trials, from the cache or measured."""
    key = known_as(system)
    if key and not again:
        known = _cached_rates(file).get(key)
        if known:
            say(f"{system.network}: valid up to {known:g} Mbit/s (cached result of this machine)")
            return float(known)
    # Greedy flows use neither a collective algorithm nor an offered load.
    plain = replace(system, algorithm="", at_load=None, tool="")
    rate_mbit = largest(lambda rate: _trial_at(replace(plain, rate_mbit=rate), say), say)
    say(f"{system.network}: valid up to {rate_mbit:g} Mbit/s")
    if key:
        _save_rate(file, key, rate_mbit)
    return rate_mbit


def largest(
    try_at: Callable[[float], Tried],  # Function that runs a trial at a rate in Mbit/s.
    say: Say = lambda _: None,  # Receiver of messages about rates that were not confirmed.
) -> float:
    """Return the highest cable rate of SCALE_MBIT at which trials are valid."""
    reasons: tuple[str, ...] = ()

    def is_valid(at: int, tries: int = TRIES) -> bool:
        nonlocal reasons
        for _ in range(tries):
            verdict = try_at(SCALE_MBIT[at]).verdict
            if verdict.valid:
                return True
            reasons = verdict.reasons
        return False

    low, high = _valid_and_invalid_index(is_valid)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_valid(middle) else (low, middle)
    while low >= 0 and not confirmed(partial(is_valid, low, 1), CONFIRMATIONS):
        say(f"{SCALE_MBIT[low]:g} Mbit/s was not confirmed by further trials")
        low -= 1
    require(
        low >= 0,
        f"this machine cannot emulate this network faithfully at {SCALE_MBIT[0]:g} Mbit/s: "
        f"{'; '.join(reasons)}; end other programs, or choose a smaller network",
    )
    return SCALE_MBIT[low]


def step_below(rate_mbit: float) -> float:
    """Return the next lower cable rate that calibration tries; the lowest is returned unchanged.

    >>> step_below(500.0), step_below(1.0)
    (300.0, 1.0)
    """
    return max((rate for rate in SCALE_MBIT if rate < rate_mbit), default=SCALE_MBIT[0])


def confirmed(valid: Callable[[], bool], times: int) -> bool:
    """Return True if `times` calibration trials are valid, with at most HICCUPS invalid trials."""
    found = [0, 0]
    while found[True] < times and found[False] <= HICCUPS:
        found[valid()] += 1
    return found[True] == times


def _valid_and_invalid_index(is_valid: Callable[[int], bool]) -> tuple[int, int]:
    """Return the indexes in SCALE_MBIT of a rate with valid trials and of a higher, invalid rate.

    The first is -1 if no rate is valid, the second is the length of the scale if all are.
    """
    at = SCALE_MBIT.index(START_MBIT)
    if is_valid(at):
        while at < len(SCALE_MBIT) - 1:
            above = min(at + STRIDE, len(SCALE_MBIT) - 1)
            if not is_valid(above):
                return at, above
            at = above
        return at, len(SCALE_MBIT)
    while at > 0:
        below = max(at - STRIDE, 0)
        if is_valid(below):
            return below, at
        at = below
    return -1, 0


def _trial_at(system: System, say: Say) -> Tried:
    from pillarbox.experiments.runs.trials.greedy import tried

    found = tried(system)
    if found.verdict.valid:
        say(f"{system.rate_mbit:g} Mbit/s: valid, {found.goodput_bps / 1e6:.4g} Mbit/s of goodput")
    else:
        say(f"{system.rate_mbit:g} Mbit/s: not valid: {found.verdict.reasons[0]}")
    return found


# -- cache of rates ----------------------------------------------------------------------------


def known_as(system: System) -> str:
    """Return the cache key of a system's calibrated rate; empty if its routing is a user's file."""
    from pillarbox.experiments.lab.emulation.defaults import chosen_plane, usual_routing
    from pillarbox.hosts.base.load import router_for

    topology = system.topology
    routing, plane = system.routing or usual_routing(topology), system.plane
    if topology.ports > 1:  # Servers with one port do not relay: routing and plane do not matter.
        router_for(topology, routing)  # Raises PillarboxError for an unknown routing.
        plane = chosen_plane(plane)
    if routing.endswith(".py"):
        return ""
    words = [topology.spec, routing, plane, system.timers, f"mtu {system.mtu}"]
    words += [f"{name} {value}" for name, value in sorted(system.options.items())]
    if (system.queue, system.queue_length) != ("droptail", ""):
        words.append(f"queue {system.queue} {system.queue_length}".strip())
    impairments = {"delay": system.delay, "loss": system.loss}
    words += [f"{name} {value}" for name, value in impairments.items() if value]
    words += [] if is_machine_root() else ["without root"]  # no real-time priority, no TUN device
    machine = f"{platform.node()} {platform.release()} {os.cpu_count()} processors"
    return ", ".join([*words, machine])


def user_cache() -> Path:
    """Return the cache folder of Pillarbox for the user who called sudo."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named, "pillarbox")
    user = os.environ.get("SUDO_UID", "")
    try:
        home = pwd.getpwuid(int(user)).pw_dir if user.isdecimal() else str(Path.home())
    except KeyError:  # The user ID has no account.
        home = str(Path.home())
    return Path(home, ".cache", "pillarbox")


def _cached_rates(file: Path) -> dict[str, Any]:
    """Return the calibrated cable rates in the cache file by key; empty if it cannot be read."""
    from pillarbox.experiments.runs.trials.store import read_json

    try:
        known = read_json(file)
    except PillarboxError:
        return {}
    return known if isinstance(known, dict) else {}


def _save_rate(file: Path, key: str, rate_mbit: float) -> None:
    from pillarbox.experiments.runs.trials.store import write_json

    output_folder(file.parent)
    write_json(file, _cached_rates(file) | {key: rate_mbit})
