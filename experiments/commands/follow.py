"""``pillarbox follow``: the paths that packets took, from a capture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from experiments.arguments import FILE, answer, json_option, routing_option

if TYPE_CHECKING:
    from experiments.observe.packets import Row
    from topos.base.topology import Topology

STRAYED = 1


@click.command()
@click.argument("capture", metavar="PCAP", type=FILE)
@click.option("--network", metavar="SPEC", help="The network, where the capture does not say.")
@routing_option(about="The routing, where the capture does not say.")
@click.option(
    "--fail",
    multiple=True,
    metavar="WHAT",
    help="What had failed, as for `path`; by default what had when the capture began.",
)
@json_option("network", "paths", "others")
def command(
    capture: Path, network: str | None, routing: str | None, fail: tuple[str, ...], as_json: bool
) -> int:
    """Put together each packet's path, hop by hop, and compare it with the routing.

    Exit code 1 tells that a packet took a path that the routing does not have.

    \b
    sudo ./pillarbox capture --seconds 5 -o lab.pcapng
    ./pillarbox follow lab.pcapng
    """
    from experiments.observe.packets import DIFFERS, lines

    topology, routing, packets, rows, others = followed(capture, network, routing, fail)
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
    head = f"{topology.spec}, {routing or 'routing not known'}: {packets} packets"
    counts = ", ".join(f"{count} {kind}" for kind, count in others.most_common())
    rest = [f"other frames: {counts}"] if others else []
    answer(
        as_json,
        {"network": topology.spec, "paths": paths, "others": others},
        "\n".join([head, *lines(topology, rows), *rest]),
    )
    return STRAYED if any(row.verdict == DIFFERS for row in rows) else 0


class Followed(NamedTuple):
    """The packets of a capture, by their paths."""

    topology: Topology
    routing: str
    packets: int
    rows: list[Row]
    others: Counter[str]


def followed(
    capture: Path, network: str | None, routing: str | None, fail: Sequence[str]
) -> Followed:
    """Return the paths in a capture, which says itself what is not given here."""
    from experiments.observe.packets import judged, packets
    from experiments.observe.pcapng import Reader
    from hosts.base.failures import parse_failures
    from topos.base.errors import PillarboxError, require
    from topos.base.spec import parse

    try:
        file = capture.open("rb")
    except OSError as error:
        raise PillarboxError(f"{capture} cannot be read: {error.strerror}") from None
    with file:
        reader = Reader(file)
        known = _known(reader.comment)
        network = network or known.network
        require(bool(network), f"{capture} does not name its network: add --network SPEC")
        topology = parse(network)
        found, others = packets(topology, reader)
    failures = parse_failures(topology, fail or known.failures)
    routing = routing or known.routing
    return Followed(
        topology, routing, len(found), judged(topology, found, routing, failures), others
    )


class _Known(NamedTuple):
    """What a capture says of its lab; empty where it says nothing."""

    network: str
    routing: str
    failures: list[str]


def _known(comment: str) -> _Known:
    try:
        found = json.loads(comment or "{}")
    except (ValueError, RecursionError):
        found = {}
    found = found if isinstance(found, dict) else {}
    network, routing = (str(found.get(name) or "") for name in ("network", "routing"))
    failures = found.get("failures")
    return _Known(network, routing, list(map(str, failures if isinstance(failures, list) else [])))
