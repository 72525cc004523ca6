"""``pillarbox follow``: paths of packets, reconstructed from a capture."""

from __future__ import annotations

from pathlib import Path

import click

from pillarbox.experiments.base.arguments import FILE, answer, json_option, routing_option

STRAYED = 1


@click.command()
@click.argument("capture", metavar="PCAP", type=FILE)
@click.option(
    "--network", metavar="SPEC", help="Network of the lab, if the capture file does not name it."
)
@routing_option(about="Routing, if the capture does not name it.")
@click.option(
    "--fail",
    multiple=True,
    metavar="WHAT",
    help="Fault in the lab during the capture, as for `path` (default: faults at its start).",
)
@json_option("network", "paths", "others")
def command(
    capture: Path, network: str | None, routing: str | None, fail: tuple[str, ...], as_json: bool
) -> int:
    """Reconstruct each packet's path from a capture and compare it with the routing.

    Exit code 1: a packet took a path that the routing does not have.

    \b
    sudo ./pillarbox capture --seconds 5 -o lab.pcapng
    ./pillarbox follow lab.pcapng
    """
    from pillarbox.experiments.lab.observe.packet_paths import DIFFERS, path_lines, paths_in_capture

    topology, routing, packets, rows, others = paths_in_capture(capture, network, routing, fail)
    name = topology.address
    paths = [
        row._asdict()
        | {
            "source": name(row.source),
            "destination": name(row.destination),
            "servers": [*map(name, row.servers)],
        }
        for row in rows
    ]
    head = f"{topology.spec}, {routing or 'routing unknown'}: {packets} packets"
    counts = ", ".join(f"{count} {kind}" for kind, count in others.most_common())
    rest = [f"other frames: {counts}"] if others else []
    answer(
        as_json,
        {"network": topology.spec, "paths": paths, "others": others},
        "\n".join([head, *path_lines(topology, rows), *rest]),
    )
    return STRAYED if any(row.verdict == DIFFERS for row in rows) else 0
