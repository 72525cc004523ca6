"""The simulator: paths, rates and arrivals of a million flows; packets; searches; networkx."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.linux.measurement import interleaved, medians, ratios
from pillarbox.topos.base.spec import parse
from pillarbox.topos.base.topology import Topology
from tests.benches._frame import Row, from_child

if TYPE_CHECKING:
    from pillarbox.experiments.models.arrays import Ints

LARGE = (
    ("bcube,4,9", "bcube"),
    ("dpillar,48,4", "sp-cw"),
    ("dcell,6,3", "dcell"),
    ("ficonn,16,3", "tor"),
    ("fattree,80", "two-level"),
)
SMALL = (("bcube,4,3", "bcube"), ("dcell,4,2", "dcell"))
BESIDE = (
    ("bcube,8,3", "bcube"),
    ("dpillar,16,3", "sp-cw"),
    ("dcell,6,2", "dcell"),
    ("ficonn,16,2", "tor"),
)
BESIDE_SMALL = (("bcube,4,2", "bcube"),)
ARRIVING, ARRIVING_SMALL = "bcube,8,3", "bcube,4,2"
LOADS = (0.3, 0.6)  # mean load of all cables, as a fraction of the link rate
# networks of the packet simulation, and the volume of each of its flows in bytes
PACKETS, PACKETS_SMALL = ("bcube,4,3", "bcube,4,4", "tree,4,256", "bcube,4,5"), ("bcube,4,1",)
PACKET_BYTES, PACKET_ROUNDS = 500_000, 2
LEAST_EVENTS_PER_S, LEAST_PARALLEL_TIMES = 2e6, 1.7
SEARCHED, SEARCHED_SMALL = "dcell,6,3", "dcell,4,2"
FLOWS, FLOWS_SMALL = 1_000_000, 10_000
MOST_S, MOST_MIB = 60.0, 2e9 / 2**20
LEAST_TIMES = 100
TIME_LIMIT_S = 300.0
NOTES = f"""
Flows connect random servers. paths_s: the links of all flows; loads_s: the flows on every link and,
by equal shares, the aggregate bottleneck throughput; max_min_s: exact max-min fair rates. Each
network has a separate process, and compiled code is loaded before (goals: {MOST_S:g} s,
{MOST_MIB:.0f} MiB). arriving: flows with web-search's sizes that arrive and end, one event each
(same goals), including the time to draw them. packets: TCP between each server and 15 others,
packet by packet, as in `reproduce tcp-at-scale`; an event is a packet that has passed a link, a
timer, or the start of a flow; hops counts packets and links (goal: {LEAST_EVENTS_PER_S / 1e6:g}
million events per second on one processor). parallel_times: the same on all idle processors, in
turns (goal, unless a single part is simulated: {LEAST_PARALLEL_TIMES:g}). search: shortest paths
from 64 servers to all. In the last table, a networkx graph counts the flows on its edges along
paths from the routers' Python code; slower_times compares this with Pillarbox's arrays, in turns in
one process (goal: {LEAST_TIMES}).
"""


def run(quick: bool) -> Iterator[Row]:
    """Yield rows of the simulator's speed: flows, packets, searches, comparison with networkx."""
    for spec, name in SMALL if quick else LARGE:
        yield _flows_row(spec, name, FLOWS_SMALL if quick else FLOWS)
    for load in LOADS:
        spec = ARRIVING_SMALL if quick else ARRIVING
        yield _arriving_row(spec, load, FLOWS_SMALL if quick else FLOWS)
    for spec in PACKETS_SMALL if quick else PACKETS:
        yield _packets_row(spec, judged=not quick)
    yield _search_row(SEARCHED_SMALL if quick else SEARCHED)
    for spec, name in BESIDE_SMALL if quick else BESIDE:
        yield _networkx_row(spec, name, rounds=2 if quick else 5, judged=not quick)


_row = partial(from_child, time_limit_s=TIME_LIMIT_S)

# -- large networks ----------------------------------------------------------------------------


def _flows_row(spec: str, name: str, flows: int) -> Row:
    row: Row = {"network": spec, "servers": parse(spec).servers, "routing": name, "flows": flows}
    columns = "paths_s", "paths_per_s", "loads_s", "max_min_s", "peak_mib"
    judge = partial(_outcome, ("paths_s", "loads_s", "max_min_s"))
    return _row(row, columns, judge, flows_s, spec, name, flows)


def flows_s(spec: str, name: str, flows: int) -> dict[str, float]:
    """Return the time of each step of simulating random flows, and the paths per second."""
    from pillarbox.experiments.models.fluid.directed_links import link_count
    from pillarbox.experiments.models.fluid.rates import (
        bottleneck_throughput,
        equal_share_rates_bps,
        link_loads,
        max_min,
    )
    from pillarbox.experiments.models.simulator.paths import routes

    network = parse(spec)
    few = routes(network, name, *_random_flows(network, 10))
    for compiled in (equal_share_rates_bps, max_min):
        compiled(few, 1e9)
    links = link_count(network)
    sources, destinations = _random_flows(network, flows)
    moments = [time.perf_counter()]
    found = routes(network, name, sources, destinations)
    moments.append(time.perf_counter())
    link_loads(found, None, links)
    bottleneck_throughput(equal_share_rates_bps(found, 1e9))
    moments.append(time.perf_counter())
    max_min(found, 1e9, links)
    moments.append(time.perf_counter())
    steps = [after - before for before, after in itertools.pairwise(moments)]
    return {
        **dict(zip(("paths_s", "loads_s", "max_min_s"), steps, strict=True)),
        "paths_per_s": flows / steps[0],
    }


def _arriving_row(spec: str, load: float, flows: int) -> Row:
    row: Row = {"arriving": spec, "servers": parse(spec).servers, "load": load, "flows": flows}
    columns = "at_a_time", "event_us", "took_s", "peak_mib"
    return _row(row, columns, partial(_outcome, ("took_s",)), arriving, spec, load, flows)


def arriving(spec: str, load: float, flows: int) -> dict[str, float]:
    """Return the time to generate and simulate randomly arriving flows, in total and per event."""
    from pillarbox.experiments.models.arrivals.arrival_request import ArrivalRequest
    from pillarbox.experiments.models.arrivals.simulated_arrivals import goodput_bps, simulate

    def asked(network: Topology) -> ArrivalRequest:
        bps = goodput_bps(network, "", 1e9)
        return ArrivalRequest(network, "", "all-to-all", "web-search", 1, bps)

    def took(network: Topology, count: int) -> dict[str, float]:
        start = time.perf_counter()
        drawn = asked(network).drawn(load, count)
        middle = time.perf_counter()
        course = simulate(network, "", *drawn, goodput_bps(network, "", 1e9)).course
        end = time.perf_counter()
        event_us = (end - middle) / course.events * 1e6
        return {"at_a_time": course.most_active, "event_us": event_us, "took_s": end - start}

    took(parse("bcube,4,1"), 1000)  # untimed run, which loads the compiled code
    return took(parse(spec), flows)


def _packets_row(spec: str, *, judged: bool) -> Row:
    def judge(row: Row) -> str:
        if judged and row["events_per_s"] < LEAST_EVENTS_PER_S:
            return f"missed: {LEAST_EVENTS_PER_S:.0f} events/s wanted"
        if judged and row["parts"] > 1 and row["parallel_times"] < LEAST_PARALLEL_TIMES:
            return f"missed: {LEAST_PARALLEL_TIMES:g} times wanted"
        return "ok"

    row: Row = {"packets": spec, "servers": parse(spec).servers}
    columns = (
        *("flows", "events_per_s", "hops_per_s", "took_s"),
        *("parts", "parallel_events_per_s", "parallel_times", "peak_mib"),
    )
    return _row(row, columns, judge, packets, spec)


def packets(spec: str) -> dict[str, float]:
    """Return the time of a packet simulation, and its events and hops per second.

    It runs on one processor and on all idle ones, in turns.
    """
    import numpy

    from pillarbox.experiments.apps.papers.ours import tcp_at_scale
    from pillarbox.experiments.models.packets.bulk import BulkFlows, bulk_flows
    from pillarbox.experiments.models.packets.simulated_tcp import (
        TcpParameters,
        TcpSimulationResults,
    )

    def flows(network: Topology) -> BulkFlows:
        pairs = tcp_at_scale.pairs(network.servers, numpy.random.default_rng(1))
        frame_bytes = tcp_at_scale.MTU + 14
        queue_bytes = tcp_at_scale.QUEUE_PACKETS * frame_bytes
        tcp = TcpParameters(tcp_at_scale.RATE_BPS, queue_bytes, tcp_at_scale.MTU)
        return bulk_flows(network, "", pairs, PACKET_BYTES, tcp, seed=1)

    flows(parse("bcube,4,1")).packets()  # untimed run, which loads the compiled code
    given = flows(parse(spec))
    found: dict[int, TcpSimulationResults] = {}

    def simulate(parts: int) -> None:
        found[parts] = given.packets(parts=parts)

    cases = {"one": partial(simulate, 1), "all": partial(simulate, 0)}
    took_s = medians(interleaved(cases, PACKET_ROUNDS))
    return {
        "flows": len(given.start_s),
        "events_per_s": found[1].events / took_s["one"],
        "hops_per_s": int(found[1].passed.sum()) / took_s["one"],
        "took_s": took_s["one"],
        "parts": found[0].parts,
        "parallel_events_per_s": found[0].events / took_s["all"],
        "parallel_times": took_s["one"] / took_s["all"],
    }


def _search_row(spec: str) -> Row:
    row: Row = {"search": spec, "servers": parse(spec).servers, "sources": 64}
    columns = "search_s", "mean_hops", "deviation_hops", "peak_mib"
    return _row(row, columns, partial(_outcome, ("search_s",)), search, spec)


def search(spec: str) -> dict[str, float]:
    """Return the time of a shortest path search from 64 servers, and the path lengths."""
    import numpy

    from pillarbox.experiments.models.simulator.breadth_first import (
        SOURCES,
        distances,
        mean_and_deviation,
    )

    distances(parse("dcell,2,1"), numpy.arange(2))
    network = parse(spec)
    sources = numpy.random.default_rng(1).integers(0, network.servers, SOURCES)
    start = time.perf_counter()
    counts = distances(network, sources)
    took_s = time.perf_counter() - start
    mean, deviation = mean_and_deviation(counts)
    return {"search_s": took_s, "mean_hops": mean, "deviation_hops": deviation}


def _outcome(steps: tuple[str, ...], row: Row) -> str:
    if sum(row[step] for step in steps) > MOST_S:
        return f"missed: under {MOST_S:g} s wanted"
    if row["peak_mib"] is None or row["peak_mib"] > MOST_MIB:
        return f"missed: under {MOST_MIB:.0f} MiB wanted"
    return "ok"


def _random_flows(network: Topology, flows: int) -> tuple[Ints, Ints]:
    import numpy

    from pillarbox.experiments.models.simulator.flow_arrays import random_flows

    return random_flows(network.servers, flows, numpy.random.default_rng(1))


# -- compared with networkx ------------------------------------------------------------------------


def _networkx_row(spec: str, name: str, rounds: int, *, judged: bool) -> Row:
    def judge(row: Row) -> str:
        missed = judged and row["slower_times"] < LEAST_TIMES
        return f"missed: {LEAST_TIMES} times wanted" if missed else "ok"

    columns = "pillarbox_us", "networkx_us", "slower_times"
    return _row({"network": spec, "routing": name}, columns, judge, compare, spec, name, rounds)


def compare(spec: str, name: str, rounds: int) -> dict[str, float]:
    """Return the time to compute a path and its link loads, by Pillarbox and by networkx."""
    import networkx

    network = parse(spec)
    many, few = 200_000, 300
    graph = networkx.DiGraph()
    for cable in network.links():
        graph.add_edge(cable.a, cable.b, flows=0)
        graph.add_edge(cable.b, cable.a, flows=0)
    sources, destinations = _random_flows(network, few)
    pairs = list(zip(sources.tolist(), destinations.tolist(), strict=True))
    cases = {
        "pillarbox": partial(_load_arrays, network, name, *_random_flows(network, many)),
        "networkx": partial(_load_graph, graph, network, name, pairs),
    }
    for case in cases.values():
        case()  # untimed first run, which compiles and fills caches
    times = medians(interleaved(cases, rounds))
    each = {"pillarbox": times["pillarbox"] / many, "networkx": times["networkx"] / few}
    in_us = {f"{case}_us": seconds * 1e6 for case, seconds in each.items()}
    return in_us | {"slower_times": ratios(each, "pillarbox")["networkx"]}


def _load_arrays(network: Topology, name: str, sources: Ints, destinations: Ints) -> None:
    from pillarbox.experiments.models.fluid.directed_links import link_count
    from pillarbox.experiments.models.fluid.rates import link_loads
    from pillarbox.experiments.models.simulator.paths import routes

    link_loads(routes(network, name, sources, destinations), None, link_count(network))


def _load_graph(graph: Any, network: Topology, name: str, pairs: list[tuple[int, int]]) -> None:
    from pillarbox.hosts.base.algorithms import algorithms

    path = algorithms(network)[name].path
    assert path
    for source, destination in pairs:
        nodes = path(network, source, destination).nodes(network)
        for near, far in itertools.pairwise(nodes):
            graph[near][far]["flows"] += 1
