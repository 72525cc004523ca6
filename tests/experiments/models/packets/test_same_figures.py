"""Figures of the packet simulation to the last digit, which a faster engine must not change.

Threads that simulate parts of a network must not change them either.

After a change of the model, replace FIGURES by the new values, and describe the change in the
changelog.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, NamedTuple

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from pillarbox import topos
from pillarbox.experiments.models.fluid.directed_links import Routes, link_count
from pillarbox.experiments.models.packets.bulk import bulk_flows
from pillarbox.experiments.models.packets.simulated_tcp import (
    TcpParameters,
    TcpSimulationResults,
    simulate_tcp_flows,
)
from pillarbox.experiments.models.packets.subflow_paths import subflow_paths
from pillarbox.experiments.models.simulator.paths import routes

MTU_9000, FRAME_9000, FRAME_1500 = 9000, 9014, 1514


class Figures(NamedTuple):
    """Totals of a packet simulation, and a digest of all its arrays."""

    passed: int
    drops: int
    repeats: int
    timeouts: int
    last_s: float
    digest: str


def bulk(
    spec: str, others: int, volume_bytes: int, parts: int = 1, spread: float = 1.0, **how: Any
) -> TcpSimulationResults:
    """Simulate flows from each server to random others; sample all queues.

    Flows start within 1 ms times `spread`.
    """
    network = topos.parse(spec)
    random = numpy.random.default_rng(1)
    order = random.permutation(network.servers)
    distances = 1 + random.permutation(network.servers - 1)[:others]
    pairs = [
        (int(order[at]), int(order[(at + distance) % network.servers]))
        for at in range(network.servers)
        for distance in distances
    ]
    parameters = {"rate_bps": 100e6, "queue_bytes": 20 * FRAME_1500, "header": 20} | how
    flows = bulk_flows(network, "", pairs, volume_bytes, TcpParameters(**parameters), seed=1)
    paths, back, subflows = flows.multipath or (flows.routes, flows.back, None)
    volumes = numpy.full(len(flows.start_s), volume_bytes)
    return simulate_tcp_flows(
        network, paths, back, flows.start_s * spread, volumes, flows.tcp,
        numpy.linspace(0, 0.5, 7), 1,
        sampled=numpy.arange(link_count(network)), subflows=subflows, parts=parts,
    )  # fmt: skip


def arriving(
    subflows: int = 0, until_s: float = 0.5, parts: int = 1, **how: Any
) -> TcpSimulationResults:
    """Simulate flows of different sizes that start at random times, and one without a path."""
    network, random = topos.parse("bcube,4,1"), numpy.random.default_rng(2)
    count = 120
    source = random.integers(0, network.servers, count)
    destination = (source + random.integers(1, network.servers, count)) % network.servers
    volumes = (1 + random.pareto(1.1, count) * 9000).astype(numpy.int64).clip(1, 2_000_000)
    start_s = random.random(count) * 0.2
    tcp = TcpParameters(50e6, 15 * FRAME_1500, header=20, subflows=subflows, **how)
    if subflows:
        pairs = list(zip(source.tolist(), destination.tolist(), strict=True))
        forth, back, counts = subflow_paths(network, pairs, subflows)
        return simulate_tcp_flows(
            network, forth, back, start_s, volumes, tcp, until_s=until_s, subflows=counts
        )
    ends = (source, destination), (destination, source)
    forth, back = (without_path(routes(network, "", *pair), 5) for pair in ends)
    moments_s = numpy.linspace(0.0, until_s, 11)
    return simulate_tcp_flows(
        network, forth, back, start_s, volumes, tcp, moments_s, until_s=until_s, parts=parts
    )


def without_path(paths: Routes, flow: int) -> Routes:
    """Return the routes, of which the path of one flow is missing."""
    lengths = numpy.diff(paths.starts)
    kept = numpy.repeat(numpy.arange(paths.flows) != flow, lengths)
    lengths[flow] = 0
    return Routes(numpy.concatenate([[0], numpy.cumsum(lengths)]), paths.links[kept])


MARKS = {"marked_from": 0.2}
SCENARIOS = {
    "cubic": partial(bulk, "bcube,4,1", 5, 600_000),
    "reno": partial(bulk, "dcell,4,1", 4, 600_000, congestion="reno"),
    "scalable": partial(bulk, "ficonn,4,1", 4, 600_000, congestion="scalable"),
    "delay": partial(bulk, "dpillar,4,2", 4, 600_000, congestion="delay"),
    "dctcp": partial(bulk, "dcell,4,1", 4, 600_000, congestion="dctcp", **MARKS),
    "cubic-ecn": partial(bulk, "tree,4,4", 4, 600_000, **MARKS),
    "reno-ecn": partial(bulk, "bcube,4,1", 4, 600_000, congestion="reno", **MARKS),
    "switches": partial(bulk, "fattree,4", 6, 400_000, congestion="reno"),
    "jumbo": partial(bulk, "bcube,4,1", 15, 400_000, mtu=MTU_9000, queue_bytes=20 * FRAME_9000),
    "timeouts": partial(bulk, "tree,4,4", 15, 100_000, queue_bytes=4 * FRAME_1500),
    "relays": partial(bulk, "dcell,4,1", 4, 300_000, relay_s=1e-4),
    "delays": partial(bulk, "bcube,4,1,rates=4:1,delays=1:5", 4, 400_000, delay_s=1e-3),
    "lab": partial(bulk, "dcell,4,1", 4, 600_000, owed_bytes=18_750),
    "lab-relays": partial(bulk, "tree,4,4", 4, 600_000, owed_bytes=18_750, relay_s=1e-5),
    "lab-ecn": partial(bulk, "bcube,4,1", 4, 600_000, owed_bytes=18_750, congestion="dctcp",
                       **MARKS),
    "lia": partial(bulk, "bcube,4,1", 3, 600_000, congestion="lia", subflows=2),
    "lia-losses": partial(bulk, "bcube,4,1", 4, 900_000, congestion="lia", subflows=2,
                          queue_bytes=5 * FRAME_1500),
    "mptcp-cubic": partial(bulk, "dcell,4,1", 3, 600_000, subflows=2, queue_bytes=6 * FRAME_1500),
    "arriving": partial(arriving),
    "arriving-mptcp": partial(arriving, 2, congestion="reno"),
    "cut-short": partial(arriving, until_s=0.1, congestion="delay"),
}  # fmt: skip
FIGURES = {
    "cubic": Figures(174578, 1763, 1689, 4, 0.39577621172172817, "afbaa4fc2a92"),
    "reno": Figures(194943, 2006, 1971, 9, 0.4818722233422216, "517a9fb4cdda"),
    "scalable": Figures(118162, 1935, 1897, 13, 0.6388749494935899, "bf77d9b6353f"),
    "delay": Figures(81739, 260, 260, 1, 0.5945295589892802, "7e13ccd1f102"),
    "dctcp": Figures(205880, 288, 288, 1, 0.47344193106949334, "fe7eb9b1a99f"),
    "cubic-ecn": Figures(145757, 479, 478, 10, 0.7762652274644145, "341476e4e88b"),
    "reno-ecn": Figures(131285, 195, 195, 0, 0.3241415334900929, "ce112e516864"),
    "switches": Figures(235569, 1930, 1919, 10, 0.3218091364396652, "52433f961058"),
    "jumbo": Figures(56523, 1814, 1814, 97, 0.6958158526046686, "adb2f9e1381e"),
    "timeouts": Figures(106198, 6185, 6185, 441, 3.2616266841039727, "7aac701437ff"),
    "relays": Figures(132562, 1280, 1271, 1, 0.2751690137759398, "653f9a9248d3"),
    "delays": Figures(91640, 568, 568, 0, 0.7601828459734334, "2ecd93031c46"),
    "lab": Figures(160699, 4161, 4161, 44, 0.6775985260704015, "637b8bc6a6bc"),
    "lab-relays": Figures(136901, 3988, 3982, 67, 0.994646928804574, "0b2241c235e1"),
    "lab-ecn": Figures(133616, 99, 99, 0, 0.2757067183926779, "994c8625a59b"),
    "lia": Figures(121122, 1448, 1407, 4, 0.26884284318914126, "405f595505cd"),
    "lia-losses": Figures(234879, 4519, 4518, 87, 0.6250957625257831, "d528f318337d"),
    "mptcp-cubic": Figures(191473, 3921, 3921, 61, 0.5129385485920426, "455bccbffbcd"),
    "arriving": Figures(11469, 117, 123, 0, 0.2765088233384334, "00f4341611a8"),
    "arriving-mptcp": Figures(14903, 253, 291, 1, 0.40032511014493655, "271d15e02332"),
    "cut-short": Figures(3790, 52, 42, 0, 0.09681173213117854, "4c5f944bff75"),
}


def figures(found: TcpSimulationResults) -> Figures:
    """Return the figures of a simulation, of which `digest` has all digits of all arrays."""
    arrays = [part for part in found if isinstance(part, numpy.ndarray)]
    numbers = b"".join(numpy.asarray(part, numpy.float64).tobytes() for part in arrays)
    return Figures(
        *(int(part.sum()) for part in (found.passed, found.drops, found.repeats, found.timeouts)),
        float(numpy.nanmax(found.end_s)),
        hashlib.sha256(numbers).hexdigest()[:12],
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_figures_are_the_same_to_the_last_digit(scenario: str) -> None:
    assert figures(SCENARIOS[scenario]()) == FIGURES[scenario]


@pytest.mark.parametrize(
    ("scenario", "parts"),
    [
        ("dctcp", 2),  # servers next to servers: paths end between parts
        ("cubic-ecn", 2),  # a tree of switches
        ("timeouts", 2),
        ("relays", 2),  # processors of relays
        ("delays", 2),
        ("arriving", 3),  # a flow without a path, and packets of three parts
        ("cut-short", 3),
    ],
)
def test_figures_do_not_depend_on_the_number_of_parts(scenario: str, parts: int) -> None:
    assert figures(SCENARIOS[scenario](parts=parts)) == FIGURES[scenario]


@settings(max_examples=15, deadline=None)
@given(
    spec=some.sampled_from(["bcube,4,1", "dcell,4,1", "ficonn,4,1", "dpillar,4,2", "tree,4,4"]),
    parts=some.integers(2, 4),
    congestion=some.sampled_from(["cubic", "reno", "dctcp", "delay"]),
    delay_s=some.sampled_from([0.0, 1e-5, 1e-3]),
    owed_bytes=some.sampled_from([0, 18_750]),
    packets=some.integers(1, 20),
    spread=some.sampled_from([0.0, 1.0]),
)
def test_results_do_not_depend_on_parts_even_if_all_flows_start_simultaneously(
    spec: str, parts: int, packets: int, **how: Any
) -> None:
    how["queue_bytes"] = packets * FRAME_1500
    one, many = (bulk(spec, 3, 60_000, count, **how) for count in (1, parts))
    assert many.parts == (parts if how["delay_s"] or not how["owed_bytes"] else 1)
    assert figures(one) == figures(many)
    assert (one.events, one.most_active) == (many.events, many.most_active)
