"""Packet capture on a lab over several computers: each machine captures, the lab merges.

Frames are stamped by each machine's own clock. The merged file has them in the lab's time of day,
in order.
"""

from __future__ import annotations

import base64
import heapq
import time
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.lab.observe.pcapng import CapturedFrame, Interface, Reader, Writer
from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture
from pillarbox.topos.base.errors import require

if TYPE_CHECKING:
    from pillarbox.experiments.apps.cluster.machines import Machines
    from pillarbox.experiments.lab.emulation.lab import Lab

# maximum frames and bytes of a capture on one machine, which keeps frames in memory
LONGEST_S, MOST_FRAMES = 60.0, 200_000
FILE = "capture.pcapng"


def _offset_s() -> float:
    """Return the offset of this machine's time of day from its CLOCK_MONOTONIC, in seconds."""
    return time.time() - time.monotonic()


# -- on each machine -------------------------------------------------------------------------------


def capture_on_machine(part: Lab, asked: dict[str, Any]) -> dict[str, Any]:
    """Capture frames at ports of this machine's servers; return the file and clock offset."""
    tapped = [
        CapturePort(title, interface, part.namespace_of(server))
        for title, interface, server in asked["ports"]
    ]
    file = BytesIO()
    counts = capture(tapped, file, **asked["how"])
    data = base64.b64encode(file.getvalue()).decode()
    return {"data": data, "missed": counts.missed, "ahead_s": _offset_s()}


# -- in the lab's process --------------------------------------------------------------------------


def capture_on_all_machines(fabric: Machines, asked: dict[str, Any]) -> dict[str, Any]:
    """Capture frames on all machines of a lab; return the merged file and its frame counts."""
    how, topology = dict(asked["how"]), fabric.lab.topology
    require(
        bool(how["seconds"]) and how["seconds"] <= LONGEST_S,
        f"a capture on other computers needs a duration: --seconds, up to {LONGEST_S:.0f}",
    )
    most = how["frames"] or MOST_FRAMES
    ports: dict[int, list[tuple[str, str, int]]] = {}
    for server, port in asked["ports"]:
        named = f"{topology.address(server)} port {port}", topology.interface(server, port)
        ports.setdefault(fabric.machine_of(server), []).append((*named, server))
    how["frames"] = most
    answers = fabric.ask_machines(
        {one: {"ask": "capture", "ports": some, "how": how} for one, some in ports.items()}
    )
    titles = [title for some in ports.values() for title, *_ in some]
    rows = (_frames(fabric, machine, one) for machine, one in answers.items())
    frames = list(islice(heapq.merge(*rows, key=lambda one: one.at_ns), most))
    file = fabric.lab.folder / FILE
    with file.open("wb") as out:
        writer = Writer(out, [Interface(one, how["longest"]) for one in titles], asked["comment"])
        numbers = {title: number for number, title in enumerate(titles)}
        for one in frames:
            number, outgoing = numbers[one.interface], one.outgoing
            writer.write(number, one.at_ns, one.data, outgoing=outgoing, length=one.length)
    return {
        "file": str(file),
        "frames": len(frames),
        "missed": sum(one["missed"] for one in answers.values()),
    }


def _frames(fabric: Machines, machine: int, answer: dict[str, Any]) -> Iterator[CapturedFrame]:
    """Yield the frames captured on a machine, with timestamps by the lab's clock."""
    shift_s = _offset_s() - answer["ahead_s"] + fabric.clocks.lab_time_s(machine, 0.0)
    frames = Reader(BytesIO(base64.b64decode(answer["data"])))
    for one in sorted(frames, key=lambda one: one.at_ns):
        yield one._replace(at_ns=one.at_ns + round(shift_s * 1e9))
