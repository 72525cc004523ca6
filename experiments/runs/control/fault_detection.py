"""Detection of faults and repairs by servers, with delays, read from their link-state events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.runs.trials.trial_faults import hops_interrupted_by
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.base.path import Step

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.lab import Lab

MOST_S = {"fast": 2.0, "paper": 0.5}  # longest wait for servers to detect a fault, in seconds
LOOK_S = 0.01
MOST_NAMED = 4

ChangedLinks = dict[int, dict[Step, bool]]  # changed links by server; True if the link has come up


def fault_detection_delays(
    lab: Lab,
    before: Failures,  # failures of the network before the change
    at_s: float,  # time of the fault or repair, by CLOCK_MONOTONIC
) -> tuple[dict[str, Any], str]:
    """Wait until servers detect failed or repaired links; return delays as data and text."""
    if not lab.forwarders:  # only servers with a forwarder detect faults
        return {}, ""
    missing, found = _changed_links(lab, before), dict[int, float]()
    deadline = time.monotonic() + MOST_S[lab.settings.timers]
    while missing:
        for server in list(missing):
            moments = _event_times_s(lab, server, missing[server], at_s)
            if moments:
                found[server] = (min(moments) - at_s) * 1e3
                del missing[server]
        if time.monotonic() > deadline:
            break
        time.sleep(LOOK_S if missing else 0)
    data = {lab.name(server): round(ms, 2) for server, ms in sorted(found.items())}
    waiting = [lab.name(server) for server in sorted(missing)]
    return {"noticed_ms": data, "not_noticed": waiting}, _delays_text(data, waiting)


def _changed_links(lab: Lab, before: Failures) -> ChangedLinks:
    """Return the links of live servers that have failed, or (True) come up again."""
    old, new = (hops_interrupted_by(lab.topology, failed) for failed in (before, lab.failures()))
    found: ChangedLinks = {}
    for server in (old.keys() | new.keys()) - lab.dead:
        was, now = old.get(server, set()), new.get(server, set())
        if was != now:
            found[server] = {step: step in was for step in was ^ now}
    return found


def _event_times_s(lab: Lab, server: int, links: dict[Step, bool], at_s: float) -> list[float]:
    """Return the times at which a server detected that these links failed or came up."""
    return [
        one["at_s"]
        for one in lab.state(server).get("news", [])
        if one["at_s"] >= at_s
        and links.get(Step(one["port"], lab.topology.server(one["peer"]))) == one["up"]
    ]


def _delays_text(found: dict[str, float], waiting: list[str]) -> str:
    if not found:
        return f"not noticed yet by {_joined_names(waiting)}" if waiting else ""
    first, last = min(found.values()), max(found.values())
    when = f"{first:.0f} ms" if last - first < 1 else f"{first:.0f} to {last:.0f} ms"
    text = f"noticed by {_joined_names(list(found))} after {when}"
    return f"{text}, and not yet by {_joined_names(waiting)}" if waiting else text


def _joined_names(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return " ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
