"""``pillarbox simulate``: simulation of flows under load, at any scale, without root."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pillarbox.experiments.base.arguments import (
    FILE,
    FOLDER,
    SPEC,
    NumberRange,
    answer,
    json_option,
    routing_option,
    seed_option,
)
from pillarbox.hosts.linux.multipath import MOST_SUBFLOWS
from pillarbox.hosts.live.settings import MPTCP, TCP
from pillarbox.topos.base.errors import require
from pillarbox.topos.base.topology import Topology

if TYPE_CHECKING:
    from pandas import DataFrame

    from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters
    from pillarbox.experiments.runs.trials.records import Run

MOST_FLOWS = 10_000_000
FLOWS, FLOWS_BY_TCP = 100_000, 2_000
# Bounds beyond which packets would take longer than the longest TCP timers, or no time at all.
RATES_MBIT = 1e-3, 1e9
MOST_RELAY_US = 1e6
DEFAULT_EVENTS = 5e8  # largest number of packet events with --smaller
FRAME_BYTES = 1514  # Size of an Ethernet frame with an MTU of 1500.
DEFAULT_QUEUE = "100 packets"
# Names of `pillarbox.experiments.models.packets.congestion.CONTROLS`, which takes long to import.
CONTROLS = ("cubic", "reno", "dctcp", "delay", "scalable", "lia")
QUANTILES = ("median", "p95", "p99")


@click.command(no_args_is_help=True)
@click.argument("topology", metavar="[SPEC]", type=SPEC, required=False)
@routing_option(
    default="",
    about="Routing, as in `gap`, or parallel (BCube's BuildPathSet; default: the first of `gap`).",
)
@click.option(
    "--choose",
    "choice",
    type=click.Choice(["random", "least-crowded"]),
    default="random",
    show_default=True,
    help="How the path of a new flow is chosen.",
)
@click.option(
    "--load",
    "loads",
    type=NumberRange(0, 1, min_open=True, max_open=True),
    multiple=True,
    help="Offered load, as a share of the capacity. Repeatable.  [default: 0.5]",
)
@click.option(
    "--load-of",
    type=click.Choice(["cables", "servers"]),
    default="cables",
    show_default=True,
    help="Capacity that the load is a share of: all cables, or all server ports.",
)
@click.option(
    "--sizes",
    default="web-search",
    show_default=True,
    metavar="NAME|BYTES|FILE",
    help="Flow sizes: web-search, data-mining, hadoop, cache, storage; or BYTES; or a "
    "FILE of bytes and probabilities.",
)
@click.option(
    "--flows",
    "pattern",
    default="all-to-all",
    show_default=True,
    metavar="PATTERN",
    help="Traffic pattern: all-to-all, permutation, rack, hotspot, ...",
)
@click.option(
    "--count",
    type=click.IntRange(100, MOST_FLOWS),
    help="Approximate number of flows; the first fifth and the last tenth do not count.  "
    f"[default: {FLOWS}; with --tcp {FLOWS_BY_TCP}]",
)
@click.option(
    "--rate-mbit",
    type=NumberRange(*RATES_MBIT),
    default=1000.0,
    show_default=True,
    help="Rate of every cable in Mbit/s.",
)
@click.option(
    "--queue",
    metavar="LENGTH",
    default=DEFAULT_QUEUE,
    show_default=True,
    help="Queue length of every port, for --tcp and --smaller: '100 packets', '150 kB', '10ms'.",
)
@click.option(
    "--bytes",
    "volume_bytes",
    type=click.IntRange(min=1),
    help="Start all flows of the pattern simultaneously, with this number of bytes each.",
)
@click.option("--tcp", is_flag=True, help="Simulate TCP as well, packet by packet.")
@click.option(
    "--smaller",
    type=SPEC,
    metavar="SPEC",
    help="Smaller network of the same kind in which packets are simulated, to estimate TCP's "
    "slowdowns of millions of flows.",
)
@click.option(
    "--events",
    type=NumberRange(min=1e5),
    default=DEFAULT_EVENTS,
    help="Approximate upper bound for packet events in the smaller network, with --smaller.  "
    "[default: 5e8]",
)
@click.option(
    "--mtu",
    type=click.IntRange(min=576, max=65535),
    default=1500,
    show_default=True,
    help="Largest IP packet, in bytes.",
)
@click.option(
    "--congestion",
    type=click.Choice(CONTROLS),
    default="cubic",
    show_default=True,
    help="TCP congestion control, with --tcp or --smaller; dctcp, delay, scalable as in labs.",
)
@click.option(
    "--ecn",
    is_flag=True,
    help="Queues mark packets from a fifth of their length on, as a lab's queue ecn; with --tcp "
    "or --smaller.",
)
@click.option(
    "--transport",
    type=click.Choice([TCP, MPTCP]),
    default=TCP,
    show_default=True,
    help="Transport protocol of the packets. Multipath TCP (mptcp) implies --tcp; its subflows "
    "take disjoint paths.",
)
@click.option(
    "--subflows",
    type=click.IntRange(min=1),
    help="Most subflows of a connection, with --transport mptcp.  [default: ports of a server, at "
    "most 9]",
)
@click.option(
    "--relay-us",
    type=NumberRange(0, MOST_RELAY_US),
    default=0.0,
    show_default=True,
    help="Time for a server to forward a packet, in microseconds, with --tcp or --smaller.",
)
@seed_option
@click.option(
    "--trace",
    type=FILE,
    help="Read the flows from a CSV or Parquet file; all of them are evaluated.",
)
@click.option(
    "--beside",
    type=FOLDER,
    metavar="RUN",
    help="Simulate the flows of a live run and compare both.",
)
@click.option(
    "-o",
    "--out",
    type=FILE,
    help="Write all flows, with completion time and slowdown, to a .csv or .parquet file.",
)
@click.option(
    "--figure", type=FILE, help="Draw the comparison of --beside to an .svg or .png file."
)
@json_option(
    *("topology", "routing", "rate_mbit", "queue", "pattern", "sizes", "seed", "trace"),
    *("simulations", "run", "beside", "bulk", "dropped"),
)
def command(
    topology: Topology | None,
    routing: str,
    choice: str,
    loads: tuple[float, ...],
    load_of: str,
    sizes: str,
    pattern: str,
    count: int | None,
    rate_mbit: float,
    queue: str,
    volume_bytes: int | None,
    tcp: bool,
    smaller: Topology | None,
    events: float,
    mtu: int,
    congestion: str,
    ecn: bool,
    transport: str,
    subflows: int | None,
    relay_us: float,
    seed: int,
    trace: Path | None,
    beside: Path | None,
    out: Path | None,
    figure: Path | None,
    as_json: bool,
) -> None:
    """Simulate arriving flows: slowdown of each flow under load.

    Flows arrive at random times and share cables max-min fairly. Slowdown is a flow's completion
    time divided by its completion time alone. Packets are simulated only with --tcp and,
    in a smaller network, with --smaller (docs/simulator.md). With --bytes all flows start
    simultaneously.

    \b
    pillarbox simulate bcube,4,1 --load 0.3 --load 0.6
    pillarbox simulate bcube,4,1 --load 0.3 --sizes cache --rate-mbit 100 --tcp
    pillarbox simulate bcube,4,1 --load 0.5 --tcp --out flows.csv
    pillarbox simulate bcube,4,1 --routing parallel --choose least-crowded --load 0.6
    pillarbox simulate dcell,4,1 --sizes data-mining --flows hotspot --json
    pillarbox simulate bcube,8,3 --load 0.5 --count 1000000 --smaller bcube,3,3
    pillarbox simulate tree,4,4 --trace flows.csv
    pillarbox simulate bcube,4,1 --bytes 1500000 --rate-mbit 100 --mtu 9000 --tcp
    pillarbox simulate bcube,4,5 --flows permutation --bytes 1000000 --tcp
    pillarbox simulate bcube,4,1 --load 0.6 --rate-mbit 100 --tcp --congestion dctcp --ecn
    pillarbox simulate bcube,5,2 --flows permutation --bytes 1000000 --transport mptcp
    pillarbox simulate --beside fct-20260301-101500-seed1 --figure comparison.svg
    """
    require(
        out is None or (beside is None and volume_bytes is None),
        "--out writes arriving flows: leave --beside and --bytes out",
    )
    if beside:
        require(topology is None, "--beside takes the run's networks: leave SPEC out")
        require(not (loads or trace), "--beside takes the run's flows: leave --load, --trace out")
        require(smaller is None, "--beside takes the run's networks: leave --smaller out")
        require(transport == TCP, "--beside takes the run's transport: leave --transport out")
        _compare_with_run(beside, figure, as_json)
        return
    require(figure is None, "--figure compares a run with its simulation: add --beside RUN")
    require(topology is not None, "give a network, such as bcube,4,1, or a run: --beside RUN")
    assert topology is not None
    tcp = tcp or transport == MPTCP
    require(
        tcp or smaller is not None or not ecn,
        "--ecn marks packets, which only --tcp and --smaller simulate: add --tcp or --smaller",
    )
    require(
        subflows is None or transport == MPTCP,
        "only Multipath TCP has subflows: add --transport mptcp",
    )
    how = {"mtu": mtu, "congestion": congestion, "ecn": ecn, "relay_s": relay_us / 1e6}
    if transport == MPTCP:
        how["subflows"] = subflows or min(topology.ports, MOST_SUBFLOWS)
    wire = _tcp_settings(topology, routing, rate_mbit, queue, how)
    if smaller is not None:
        require(
            transport == TCP,
            "--smaller does not simulate Multipath TCP: leave --smaller or --transport mptcp out",
        )
        require(
            smaller.servers < topology.servers,
            f"--smaller needs a network with fewer servers than {topology.spec}: use --tcp",
        )
        require(
            smaller.kind == topology.kind and smaller.factors.rates == topology.factors.rates,
            f"{smaller.spec} is of another kind than {topology.spec}, or its levels have other "
            "rates: choose --smaller with the same name and rates=",
        )
    if volume_bytes is not None:
        require(
            not (loads or trace),
            "simultaneous flows (--bytes) have no load: leave --load, --trace out",
        )
        require(not smaller, "--smaller needs arriving flows: use --load, not --bytes")
        bulk_settings = (pattern, volume_bytes, rate_mbit, queue, seed)
        _simulate_bulk(topology, routing, bulk_settings, wire, tcp, as_json)
        return
    from pillarbox.experiments.models.arrivals.arrival_request import (
        ArrivalRequest,
        arrivals_of_trace,
    )
    from pillarbox.experiments.models.arrivals.simulated_arrivals import goodput_bps
    from pillarbox.experiments.models.simulator.paths import routing_by_name
    from pillarbox.experiments.runs.reporting.arrival_results import (
        SimulatedNetwork,
        SmallerNetwork,
        arrival_results,
        results_text,
    )
    from pillarbox.experiments.runs.reporting.flow_files import (
        flow_table,
        require_table_file,
        write_tables,
    )

    require(not (trace and smaller), "--smaller needs random flows: use --load, not --trace")
    if out:
        require_table_file(out)
    require(trace is None or not loads, "a trace determines the load: leave --load out")

    def request_of(network: Topology) -> ArrivalRequest:
        routing_by_name(network, routing)
        cable_bps = goodput_bps(network, routing, rate_mbit * 1e6, mtu)
        return ArrivalRequest(network, routing, pattern, sizes, seed, cable_bps, load_of)

    request = request_of(topology)
    smaller_request = request_of(smaller) if smaller else None
    count = count or (FLOWS_BY_TCP if tcp else FLOWS)
    network = SimulatedNetwork(topology, routing, choice, seed, request.cable_bps, wire)
    found, tables = [], []
    for load in loads or (None if trace else 0.5,):
        began, samples = time.perf_counter(), None
        if trace:
            flows = arrivals_of_trace(topology, trace)
        else:
            assert load is not None
            flows = request.drawn(load, count)
            if smaller_request:
                samples = SmallerNetwork(
                    smaller_request,
                    load,
                    smaller_request.count_in_time_of(request, count),
                    _tcp_settings(smaller_request.topology, routing, rate_mbit, queue, how),
                    events,
                )
        drawn_s = round(time.perf_counter() - began, 3)
        for row, simulated in arrival_results(network, flows, by_tcp=tcp, smaller=samples):
            found.append({"load": load, **row, "drawn_s": drawn_s})
            if out:
                tables.append(flow_table(topology, load, row["of"], simulated))
    if out:
        write_tables(tables, out)
    about = {
        "topology": topology.spec,
        "routing": routing or None,
        "rate_mbit": rate_mbit,
        "queue": queue,
        "pattern": None if trace else pattern,
        "sizes": None if trace else sizes,
        "seed": seed,
        "trace": str(trace) if trace else None,
    }
    answer(as_json, {**about, "simulations": found}, results_text(found))


# -- flows ---------------------------------------------------------------------------------------


def _tcp_settings(
    topology: Topology, routing: str, rate_mbit: float, queue: str, how: dict[str, Any]
) -> TcpParameters:
    """Return the TCP simulator's settings: cable rate, queue length, headers and servers."""
    from pillarbox.experiments.lab.linux.queueing import MARKED_FROM, length_bytes
    from pillarbox.experiments.models.arrivals.simulated_arrivals import routing_header_bytes
    from pillarbox.experiments.models.packets.simulated_tcp import TcpParameters

    header = routing_header_bytes(topology, routing)
    if "subflows" in how:
        from pillarbox.experiments.models.packets.subflow_paths import require_several_ports
        from pillarbox.hosts.wire.source_route import SIZE

        require_several_ports(topology)
        header = SIZE  # the paths of ports have a header of their own
    frame_bytes = how["mtu"] + FRAME_BYTES - 1500 + header
    queue_bytes = length_bytes(queue, rate_mbit * 125_000, frame_bytes)
    of_levels = tuple(
        length_bytes(queue, rate_mbit * factor * 125_000, frame_bytes)
        for factor in topology.factors.rates
    )
    given = {name: value for name, value in how.items() if name != "ecn"}
    given |= {"levels_queue_bytes": of_levels, "marked_from": MARKED_FROM if how["ecn"] else 0.0}
    return TcpParameters(rate_mbit * 1e6, queue_bytes, header=header, **given)


# -- simultaneous flows --------------------------------------------------------------------------


def _simulate_bulk(
    topology: Topology,
    routing: str,
    how: tuple[Any, ...],
    tcp: TcpParameters,
    with_packets: bool,
    as_json: bool,
) -> None:
    """Simulate simultaneous flows of one volume, and print their completion times."""
    from pillarbox.experiments.base.processes import peak_mib
    from pillarbox.experiments.models.packets.bulk import bulk_flows, links_with_most_drops
    from pillarbox.experiments.models.workloads.patterns import pairs_of
    from pillarbox.experiments.models.workloads.workload import Workload
    from pillarbox.experiments.runs.reporting.arrival_results import transport_name

    pattern, volume_bytes, rate_mbit, queue, seed = how
    pairs = pairs_of(topology, Workload(pattern, volume_bytes), seed)
    flows = bulk_flows(topology, routing, pairs, volume_bytes, tcp, seed)
    rows: list[dict[str, Any]] = [{"of": "fluid", **flows.times(flows.fluid().end_s)}]
    dropped: list[dict[str, Any]] = []
    notes = [f"{len(pairs):,} flows of {volume_bytes:,} bytes."]
    if with_packets:
        began = time.perf_counter()
        found = flows.packets()
        took_s = time.perf_counter() - began
        times = flows.times(found.end_s)
        share = rows[0]["last_s"] / times["last_s"] if times["last_s"] else None
        counted = {name: int(getattr(found, name).sum()) for name in ("drops", "timeouts")}
        rows[0] |= {"of fluid": None, **dict.fromkeys(counted)}
        rows.append({"of": transport_name(tcp), **times, "of fluid": share, **counted})
        dropped = links_with_most_drops(topology, found)
        notes.append(f"{found.events:,} events in {took_s:.1f} s, {round(peak_mib()):,} MiB.")
        if dropped:
            worst = ", ".join(f"{one['drops']:,} from {one['where']}" for one in dropped)
            notes.append(f"Largest packet losses: {worst}.")
    from pillarbox.experiments.base.text import paragraphs, records

    about = {"topology": topology.spec, "routing": routing or None, "rate_mbit": rate_mbit}
    about |= {"queue": queue, "pattern": pattern, "seed": seed}
    text = f"{records(rows)}\n\n{paragraphs(notes)}"
    answer(as_json, {**about, "bulk": rows, "dropped": dropped}, text)


# -- comparison with a live run ------------------------------------------------------------------


def _compare_with_run(folder: Path, figure: Path | None, as_json: bool) -> None:
    """Simulate the flows of a live run, and print live and simulated slowdowns."""
    from pillarbox.experiments.base.text import paragraphs, records
    from pillarbox.experiments.runs.reporting import long_flows, overlay
    from pillarbox.experiments.runs.trials.records import load

    if figure:
        overlay.check_file(figure)
    run = load(folder)
    if long_flows.lasts(run):
        require(figure is None, "flows with a duration have no figure: leave --figure out")
        _compare_lasting_flows(run, as_json)
        return
    flows = overlay.overlaid(run)
    rows = overlay.class_rows(flows)
    if figure:
        overlay.write_figure(overlay.overlay_figure(flows), figure)
    shown = [
        {"system": row["system"], "sizes": row["sizes"], "flows": row["flows"]}
        | {f"{name} {kind}": row[kind][name] for name in QUANTILES for kind in overlay.KINDS}
        for row in rows
    ]
    notes = [
        "Slowdown of the same flows: live; in the fluid model; and with TCP, packet by packet, "
        "with drop-tail queues of the lab's length."
    ]
    text = f"{records(shown)}\n\n{paragraphs([*notes, *_invalid_systems(flows)])}"
    answer(as_json, {"run": str(folder), "beside": rows}, text)


def _compare_lasting_flows(run: Run, as_json: bool) -> None:
    """Print live, simulated and ideal goodput of a run's flows that have a duration."""
    from pillarbox.experiments.base.text import paragraphs, records
    from pillarbox.experiments.runs.reporting.long_flows import KINDS, lasting, length_rows

    flows = lasting(run)
    rows = length_rows(flows)
    shown = [
        {name: row[name] for name in ("system", "cables", "flows")}
        | {f"{kind} Mbit/s": row[kind] / 1e6 for kind in KINDS}
        | {"off": None if row["off"] is None else f"{row['off']:+.1%}"}
        for row in rows
    ]
    notes = [
        "Goodput of the same flows, by the number of cables on their paths: live; with TCP, packet "
        "by packet, with drop-tail queues of the lab's length; and ideal, which is max-min fair. "
        "off: deviation of simulated TCP from live."
    ]
    text = f"{records(shown)}\n\n{paragraphs([*notes, *_invalid_systems(flows)])}"
    answer(as_json, {"run": str(run.folder), "beside": rows}, text)


def _invalid_systems(flows: DataFrame) -> list[str]:
    """Return a sentence with the systems that have invalid trials in the run, if there are any."""
    doubtful = list(dict.fromkeys(flows["system"][~flows["valid"].fillna(value=False)]))
    sentence = f"Systems with invalid live trials: {', '.join(doubtful)}."
    return [sentence] if doubtful else []
