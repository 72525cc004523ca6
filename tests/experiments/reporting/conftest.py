"""A small run: two systems, two repeats, a cut cable, a failed flow, an invalid trial."""

from __future__ import annotations

from itertools import product

import pandas as pd
import pytest

from experiments.runs import schema
from topos.base.spec import parse

VOLUME = 1_000_000
SYSTEMS = {"bcube,2,1 bsr": ("bcube,2,1", 4e6), "tree,2,2": ("tree,2,2", 2e6)}
INVALID_TRIAL = 3  # the last one of the tree
FAILED = "connection refused"


def typed(rows, table):
    """Return rows as a table of the schema, missing columns missing."""
    columns = schema.TRIAL | schema.TABLES[table]
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype(columns)


def made_records():
    rows = {name: [] for name in schema.TABLES}
    for trial, (repeat, (system, (spec, rate))) in enumerate(product((0, 1), SYSTEMS.items())):
        topology = parse(spec)
        marks = {
            "trial": trial,
            "system": system,
            "repeat": repeat,
            "valid": trial != INVALID_TRIAL,
        }
        _add_flows(rows, marks, topology, rate)
        _add_links(rows, marks, topology, rate)
        if spec.startswith("bcube"):
            event = {"at_s": 0.5, "event": "cut", "what": "0.0 0.1", "detected_s": 0.05}
            rows["events"].append(marks | event | {"rerouted_s": 0.2, "recovered_s": 0.6})
            rows["events"].append(marks | {"at_s": 1.5, "event": "healed", "what": "0.0 0.1"})
    return {name: typed(rows[name], name) for name in schema.TABLES}


def _add_flows(rows, marks, topology, rate):
    pairs = [pair for pair in product(range(4), repeat=2) if pair[0] != pair[1]]
    for flow, (source, destination) in enumerate(pairs):
        ends = topology.address(source), topology.address(destination)
        row = marks | {"flow": flow, "source": ends[0], "destination": ends[1], "tool": "generator"}
        row |= {"start_s": 0.0, "begin_s": 0.0, "volume_bytes": VOLUME, "tries": 1}
        row |= {"ideal_bps": rate, "ideal_end_s": VOLUME * 8 / rate, "path": " ".join(ends)}
        if (marks["trial"], flow) == (0, 5):
            rows["flows"].append(row | {"status": "failed", "reason": FAILED, "delivered_bytes": 0})
            continue
        end_s = VOLUME * 8 / rate * (1.05 + 0.01 * flow)
        row |= {"status": "completed", "reason": "", "end_s": end_s, "delivered_bytes": VOLUME}
        rows["flows"].append(row | {"goodput_bps": VOLUME * 8 / end_s, "retransmits": flow})
        for half in (0, 1):
            interval = {"flow": flow, "begin_s": half * end_s / 2, "end_s": (half + 1) * end_s / 2}
            rows["intervals"].append(marks | interval | {"delivered_bytes": VOLUME // 2})


def _add_links(rows, marks, topology, rate):
    for cable in topology.links():
        for node, port, far in ((cable.a, cable.a_port, cable.b), (cable.b, cable.b_port, cable.a)):
            names = [
                topology.address(n) if n < topology.servers else topology.node_name(n)
                for n in (node, far)
            ]
            row = {"from": names[0], "to": names[1], "port": port, "rate_bps": 1e7}
            row |= {"sent_bytes": 1000, "dropped_packets": 0}
            row |= {"busy_share": min(0.5 + 0.1 * cable.level + 0.01 * node, 1.0)}
            rows["links"].append(marks | row)


@pytest.fixture(scope="session")
def records():
    return made_records()
