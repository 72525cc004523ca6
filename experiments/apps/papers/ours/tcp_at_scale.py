"""Guo 2009, Fig. 11, beyond its 16 servers: BCube and a two-level tree, simulated TCP by packets.

Paper (section 7.5): BCube_1 of n = 4 carries 750 Mbit/s per server all-to-all at 1 Gbit/s; the
tree, of four mini-switches below a fifth, 260. Here BCube has more levels of the same switches, and
the tree more leaves of four servers below a root that has a port for each. As in the testbed a
server sends to 15 others: with 16 servers to all, and with more servers to random ones.

The paper's flows carry 683 MB each. Simulating that many packets takes too long, and in short
flows the last timeouts would dominate: so throughput is measured until four fifths of the bytes are
delivered.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy

from pillarbox.experiments.apps.papers.shared.draws import (
    Found,
    Runs,
    drawn_note,
    seeded_task_function,
    simulation_run_count,
    simulation_runs,
    values_by_run,
)
from pillarbox.experiments.apps.papers.shared.figure import (
    Claim,
    Made,
    figure,
    point,
    quoted,
    verdict,
)
from pillarbox.experiments.models.arrivals.fluid_events import delivered_bits_at
from pillarbox.experiments.models.fluid.ideal import header_bytes
from pillarbox.experiments.models.packets.bulk import bulk_flows
from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
from pillarbox.experiments.runs.reporting.reproduced.result import Point, Settings
from pillarbox.topos.base.spec import parse

BCUBE, TREE = "BCube", "tree"
SIZES, QUICK_SIZES = (16, 256, 1024, 4096), (16, 64)
LEVELS = {16: 1, 64: 2, 256: 3, 1024: 4, 4096: 5}
OTHERS = 15  # number of servers to which each server sends
MTU, QUEUE_PACKETS = 9000, 100
# ^simulated rate and paper's rate: timeouts weigh as much as in live labs of the simulated rate
RATE_BPS, PAPERS_BPS = 100e6, 1e9
VOLUME_BYTES = 500_000
PAPERS_GBPS = {(BCUBE, 16): 0.75, (TREE, 16): 0.26}
PAPERS_RATIO = 750 / 260
RUNS = 2
MOST = 0.8  # throughput is measured until this fraction of bytes is delivered
# number of samples, and their duration relative to the completion time of fluids
MOMENTS, LASTING = 400, 4.0


def spec_of(name: str, servers: int) -> str:
    """Return the spec of the BCube or tree with that many servers."""
    return f"bcube,4,{LEVELS[servers]}" if name == BCUBE else f"tree,4,{servers // 4}"


def pairs(servers: int, random: numpy.random.Generator) -> list[tuple[int, int]]:
    """Return source and destination of all flows: every server sends and receives the same number.

    >>> found = pairs(64, numpy.random.default_rng(1))
    >>> len(found), len(set(found)), {sum(1 for _, d in found if d == one) for one in range(64)}
    (960, 960, {15})
    """
    # Servers form a random ring; all send to those at the same random distances in the ring.
    order = random.permutation(servers)
    away = 1 + random.permutation(servers - 1)[:OTHERS]
    places = numpy.arange(servers)
    return [
        (int(order[at]), int(order[(at + distance) % servers]))
        for at in places
        for distance in away
    ]


@seeded_task_function
def measure(name: str, servers: int, random: numpy.random.Generator) -> Found:
    """Return a server's throughput in cables, by TCP and as fluids; drops, timeouts and events."""
    network = parse(spec_of(name, servers))
    header = header_bytes(network, "")
    frame_bytes = MTU + 14 + header
    tcp = TcpParameters(RATE_BPS, QUEUE_PACKETS * frame_bytes, MTU, header)
    flows = bulk_flows(
        network, "", pairs(servers, random), VOLUME_BYTES, tcp, int(random.integers(1_000_000))
    )
    fluid = flows.fluid()
    last_s = float(fluid.end_s.max())
    moments_s = numpy.linspace(0, LASTING * last_s, MOMENTS)
    found, ideal_bits = flows.packets(moments_s), delivered_bits_at(fluid, moments_s)
    # volume of a server, in seconds of a cable's rate
    bits = 8.0 * VOLUME_BYTES * OTHERS / RATE_BPS
    return {
        "throughput": _throughput_until_most(moments_s, found.delivered_bits, bits * servers)
        / servers,
        "ideal": _throughput_until_most(moments_s, ideal_bits, bits * servers) / servers,
        "last": last_s / float(found.end_s.max()),
        "drops": int(found.drops.sum()) / int(found.passed.sum()),
        "timeouts": int(found.timeouts.sum()) / len(found.end_s),
        "events": found.events,
    }


def _throughput_until_most(moments_s: Any, delivered_bits: Any, cables_s: float) -> float:
    """Return the mean number of cables' worth of goodput until most data is delivered."""
    passed_s = float(numpy.interp(MOST * cables_s * RATE_BPS, delivered_bits, moments_s))
    return MOST * cables_s / passed_s


@figure(
    "tcp-at-scale",
    "BCube against a two-level tree, all-to-all by TCP, from 16 servers to 4096 (Guo 2009, beyond)",
    "BCube and a tree, from the testbed's 16 servers upwards",
    "servers",
    "throughput of a server at 1 Gbit/s, Gbit/s",
    log_x=True,
)
def tcp_at_scale(settings: Settings) -> Made:
    """Simulate all-to-all TCP traffic over BCube and a tree, with 16 to 4096 servers."""
    sizes = QUICK_SIZES if settings.quick else SIZES
    count = simulation_run_count(settings, RUNS, 2)
    series = [(name, servers) for name in (BCUBE, TREE) for servers in sizes]
    cases = [(name, servers) for name, servers in series]
    runs = dict(zip(series, simulation_runs(settings, measure, cases, count), strict=True))
    points = [_throughput_point(of, name, servers) for (name, servers), of in runs.items()]
    claims = [_ratio_claim(runs, servers) for servers in sizes]
    others = [
        row for (name, servers), of in runs.items() for row in _other_points(of, name, servers)
    ]
    return Made(
        points,
        rows=[*points, *(claim.row for claim in claims), *others],
        judged=verdict(claims),
        notes=(
            drawn_note(settings, count),
            f"Flows of {VOLUME_BYTES / 1e6:g} MB at {RATE_BPS / 1e6:g} Mbit/s, CUBIC, MTU {MTU}, "
            f"queues of {QUEUE_PACKETS} packets; rates are multiplied by "
            f"{PAPERS_BPS / RATE_BPS:g}. Ideal: the same flows in the fluid model on the same "
            f"paths. Throughput until {MOST:.0%} of the bytes are delivered. Agreement: at every "
            f"size BCube is at least {PAPERS_RATIO:.2f} times as fast as the tree, the testbed's "
            "ratio. The tree's root switch has a port per four servers; no switch has more than "
            "some hundred.",
        ),
    )


def _throughput_point(of: Runs, name: str, servers: int) -> Point:
    scale = PAPERS_BPS / 1e9
    paper = PAPERS_GBPS.get((name, servers))
    found = of.point(name, servers, lambda run: run["throughput"] * scale, paper)
    return replace(found, ideal=float(numpy.mean(of.values("ideal"))) * scale)


def _ratio_claim(runs: dict[tuple[str, int], Runs], servers: int) -> Claim:
    """Claim that BCube's throughput exceeds the tree's by the same factor as in the testbed."""
    both = ((runs[name, servers], "throughput") for name in (BCUBE, TREE))
    times = values_by_run(lambda bcube, tree: bcube / tree, *both)
    paper = PAPERS_RATIO if servers == min(SIZES) else None
    row = point(f"{BCUBE} / {TREE}", servers, times, paper)
    faster = quoted("BCube is about 3 times faster than the tree.", "Guo 2009, 7.5")
    return Claim(row, at_least=True, wanted=PAPERS_RATIO, sentence=faster)


def _other_points(of: Runs, name: str, servers: int) -> list[Point]:
    return [
        of.point(f"{name}: until the last flow ends, of fluids", servers, "last"),
        of.point(f"{name}: dropped, share of packets", servers, "drops", least=0.0),
        of.point(f"{name}: time-outs a flow", servers, "timeouts", least=0.0),
    ]
