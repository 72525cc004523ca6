"""New flows per second: loss and delay of first packets, and throughput beyond saturation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pillarbox.experiments.lab.linux.measurement import in_child
from pillarbox.topos.base.spec import parse
from tests.benches import _labs
from tests.benches._frame import Row

NETWORKS = (
    *("dcell,4,1", "bcube,4,1", "ficonn,4,1", "dpillar,4,3", "tree,4,4"),
    *("dcell,6,1", "bcube,7,1", "ficonn,4,2", "dpillar,10,2", "tree,8,6"),
    *("dcell,10,1", "bcube,10,1", "ficonn,14,1", "dpillar,14,2", "tree,10,10"),
)
QUICK_NETWORKS = ("ficonn,4,1",)
RATES, QUICK_RATES = (1, 10, 100, 500, 1000, 2000, 5000, 10_000), (100, 500)  # new flows per second
# Minimum number of flows, and maximum duration in seconds, at one offered rate.
LEAST_FLOWS, MOST_S = 20, 4.0
OFFER_S, QUICK_OFFER_S = 2.0, 0.5
DRAIN_S, REST_S = 3.0, 0.5
PLANES, TIMERS = ("ebpf", "python"), ("fast", "paper")
WITHOUT_LOSS = {
    "ebpf": 2000,
    "python": 500,
    "": 2000,
}  # goal by plane: new flows/s without packet loss
LEAST_BEYOND = 0.5  # minimum carried rate under overload, as a fraction of the highest
TIME_LIMIT_S = 300.0
NOTES = f"""
Every flow is one UDP packet with a separate source port, between two random servers.
lost_percent: first packets that did not arrive within {DRAIN_S:.0f} s. median_ms and p99_ms: delay
of the arrived packets, counted from the scheduled sending time of each. carried_per_s: arrived
flows divided by the time until the last arrival. Goals: no loss up to {WITHOUT_LOSS["ebpf"]} flows
per second on the eBPF plane and {WITHOUT_LOSS["python"]} on the Python plane; at higher rates, at
least {LEAST_BEYOND} of the highest carried rate.
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield a row for each network, plane, kind of timers and rate."""
    rates, seconds = (QUICK_RATES, QUICK_OFFER_S) if quick else (RATES, OFFER_S)
    for network in QUICK_NETWORKS if quick else NETWORKS:
        relays = parse(network).ports > 1
        for plane in PLANES[: 1 if quick else None] if relays else ("",):
            for timers in TIMERS[: 1 if quick else None] if relays else ("",):
                yield from _rows(network, plane, timers, rates, seconds)


def _rows(
    network: str, plane: str, timers: str, rates: tuple[int, ...], seconds: float
) -> Iterator[Row]:
    row = {"network": network, "servers": parse(network).servers, "plane": plane, "timers": timers}
    why = _labs.hindrance(plane)
    settings = {name: row[name] for name in ("plane", "timers") if row[name]}
    found, outcome = [_empty_row(rate) for rate in rates], f"skipped: {why}"
    if not why:
        result = in_child(
            carried_rates, network, settings, rates, seconds, time_limit_s=TIME_LIMIT_S
        )
        found, outcome = result.value or found, f"failed: {result.failure}"
    most = 0.0
    for one in found:
        if one["lost_percent"] is not None:
            most = max(most, one["carried_per_s"])
            outcome = _rate_verdict(one, most, WITHOUT_LOSS[plane])
        yield {**row, **one, "outcome": outcome}


def _rate_verdict(found: Row, most: float, without_loss: int) -> str:
    if found["offered_per_s"] <= without_loss and found["lost_percent"]:
        return "missed: first packets are lost"
    if found["carried_per_s"] < LEAST_BEYOND * min(most, found["offered_per_s"]):
        return "missed: it carries less under more load"
    return "ok"


def _empty_row(rate: int) -> Row:
    return {"offered_per_s": rate} | dict.fromkeys(
        ("flows", "lost_percent", "median_ms", "p99_ms", "carried_per_s")
    )


def carried_rates(
    network: str, settings: dict[str, Any], rates: list[int], seconds: float
) -> list[dict[str, Any]]:
    """Return the carried rate and losses at each offered rate of new flows, in one lab."""
    import time

    from tests.benches._new_flows import NewFlowSender

    topology = parse(network)
    servers, rows = range(topology.servers), []
    with _labs.sandboxed(topology, **settings) as lab:
        namespaces = [lab.namespace_of(server) for server in servers]
        with NewFlowSender(namespaces, [topology.ip(server) for server in servers]) as flows:
            for rate in rates:
                lasts_s = max(seconds, min(MOST_S, LEAST_FLOWS / rate))
                carried = flows.offer(rate, lasts_s, DRAIN_S)
                rows.append(
                    {
                        "offered_per_s": rate,
                        "flows": carried.sent,
                        "lost_percent": 100 * carried.lost_share,
                        "median_ms": carried.delay_ms(0.5),
                        "p99_ms": carried.delay_ms(0.99),
                        "carried_per_s": carried.per_s,
                    }
                )
                time.sleep(REST_S)
    return rows
