"""Connections of this machine for the generator's loops, and what the loops are to do with them."""

from __future__ import annotations

import os
import socket

from pillarbox.experiments.lab.traffic.generator_sockets import FlowConnection
from pillarbox.experiments.lab.traffic.generator_worker import BOARD_BYTES, GeneratorTask
from pillarbox.experiments.models.workloads.flows import Flow

INTERVAL_S = 0.02


def connected(flow: Flow) -> FlowConnection:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
    for end in (sender, receiver):
        end.setblocking(False)
    return FlowConnection(flow, sender, receiver, tries=1)


def board_of(flows: int) -> int:
    """Return the memory in which a loop says how far its flows are, as an open file."""
    board = os.memfd_create("board")
    os.ftruncate(board, BOARD_BYTES * flows)
    return board


def task_of(flows: int, names: dict[str, int], timeout_s: float) -> GeneratorTask:
    return {
        "flows": [],
        "namespaces": {},
        "addresses": {},
        "names": names,
        "dead": [],
        "events": [],
        "congestion": "cubic",
        "most_bps": None,
        "multipath": False,
        "interval_s": INTERVAL_S,
        "timeout_s": timeout_s,
        "together": 1,
        "board": board_of(flows),
    }
