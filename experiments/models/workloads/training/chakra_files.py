"""Reading and writing of Chakra execution traces: one file per rank, or one file for all ranks.

Process groups are in a JSON file, as ASTRA-sim reads it: ``{"1": [0, 1], "2": [2, 3]}``. The size
of a collective operation, attribute ``comm_size``, is that of a rank's data before the operation.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base.files import give_to_user, output_folder, write_atomically
from pillarbox.experiments.base.text import printable
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    MOST_NODES,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
    check_trace,
)
from pillarbox.hosts.base.load import open_nonblocking
from pillarbox.topos.base.errors import PillarboxError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

RANK = "%d"  # stands for the rank in the name of a trace's files
GROUPS_FILE = "comm_group.json"
SUFFIX = ".et"
VERSION = "0.0.4"  # schema version in the metadata of written traces
MOST_FILE_BYTES = 1 << 28  # maximum size of a trace file
MOST_GROUPS_BYTES = 1 << 24  # maximum size of a file of process groups
LONGEST_LABEL = 60  # maximum length of a node's parallelism, in characters
LONGEST_VARINT = 10  # maximum bytes of a varint (64 bits)
SIGN = 1 << 63  # numbers from here on are negative numbers in an unsigned field
# Attribute of a node that names its parallelism. Programs that read Chakra traces ignore unknown
# attributes.
PARALLELISM = "parallelism"
PARTS = "send_bytes"  # attribute with the parts of an uneven total exchange, a list of int64


def read_trace(
    path: str,
    ranks: int | None = None,
    groups: str = "",
    tflops: float = 0.0,
    *,
    pytorch: bool = False,
) -> Trace:
    """Read a training iteration; raise PillarboxError if it cannot be run.

    Parameters
    ----------
    path : str
        Path of the files, with ``%d`` in place of the rank, or of one file that each rank runs.
    ranks : int, optional
        Number of ranks; by default, that of the files ``%d`` names.
    groups : str
        File of process groups; by default ``comm_group.json`` in the trace's folder, if it exists.
    tflops : float
        Speed of a computation that has a number of operations (``num_ops``) and no duration.
    pytorch : bool
        True reads traces that Chakra's converter made of PyTorch traces, as Chakra's feeder does:
        control dependencies are call stacks there, and do not delay nodes; data dependencies on
        nodes that the file does not have are left out.
    """
    files = _files_of(path, ranks)
    group_file = Path(groups) if groups else Path(path).parent / GROUPS_FILE
    known = _process_groups(group_file) if groups or group_file.exists() else {}
    budget = MOST_NODES
    read: dict[Path, tuple[TraceNode, ...]] = {}
    for file in files:
        if file not in read:
            nodes = tuple(_nodes_of(file, budget, tflops, pytorch=pytorch))
            read[file] = _without_missing(nodes) if pytorch else nodes
        budget -= len(read[file])
    trace = Trace(tuple(read[file] for file in files), known)
    try:
        check_trace(trace)
    except PillarboxError as error:
        raise PillarboxError(f"the trace {printable(path)} cannot be run: {error}") from None
    return trace


def _without_missing(nodes: tuple[TraceNode, ...]) -> tuple[TraceNode, ...]:
    """Return nodes without their dependencies on nodes that do not exist."""
    known = {node.number for node in nodes}
    return tuple(
        node
        if known.issuperset(node.after)
        else replace(node, after=tuple(one for one in node.after if one in known))
        for node in nodes
    )


def _files_of(path: str, ranks: int | None) -> list[Path]:
    """Return the trace file of each rank."""
    if RANK not in Path(path).name:
        require(ranks is not None, f"{printable(path)} is one file for all ranks: set their number")
        assert ranks is not None
        return [Path(path)] * ranks
    found: list[Path] = []
    while ranks is None or len(found) < ranks:
        file = Path(path.replace(RANK, str(len(found))))
        if not file.exists():
            break
        found.append(file)
    require(
        bool(found) and (ranks is None or len(found) == ranks),
        f"there is no trace file {printable(path.replace(RANK, str(len(found))))}",
    )
    return found


def _bytes_of(file: Path, most_bytes: int) -> bytes:
    """Return a file's content; raise PillarboxError if it is unreadable or too large."""
    try:
        with open(file, "rb", opener=open_nonblocking) as opened:
            require(
                stat.S_ISREG(os.fstat(opened.fileno()).st_mode),
                f"{printable(str(file))} is not a regular file: name a file on a disk",
            )
            content = opened.read(most_bytes + 1)
    except OSError as error:
        raise PillarboxError(f"{printable(str(file))} cannot be read: {error.strerror}") from None
    require(
        len(content) <= most_bytes,
        f"{printable(str(file))} is larger than {most_bytes >> 20} MiB, the limit of this file",
    )
    return content


def _process_groups(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each process group in a JSON file."""
    content = _bytes_of(file, MOST_GROUPS_BYTES)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    require(
        isinstance(found, dict)
        and all(
            isinstance(members, list) and all(type(rank) is int for rank in members)
            for members in found.values()
        ),
        f'{printable(str(file))} has no process groups: write {{"1": [0, 1], "2": [2, 3]}}',
    )
    assert isinstance(found, dict)
    return {name: tuple(members) for name, members in found.items()}


def _nodes_of(file: Path, most: int, tflops: float, *, pytorch: bool) -> Iterator[TraceNode]:
    """Yield the nodes of a trace file, which begins with its metadata."""
    from google.protobuf.message import DecodeError

    from pillarbox.experiments.models.workloads.training.chakra_schema import GlobalMetadata, Node

    messages = _messages_of(file, _bytes_of(file, MOST_FILE_BYTES))
    for number, content in enumerate(messages):
        require(number <= most, f"{printable(str(file))}: a trace has at most {MOST_NODES:,} nodes")
        message = Node() if number else GlobalMetadata()
        try:
            message.ParseFromString(content)
        except DecodeError:
            what = f"message {number} is no node" if number else "it does not begin with metadata"
            raise PillarboxError(f"{printable(str(file))} is no Chakra trace: {what}") from None
        if number:
            if pytorch:
                del message.ctrl_deps[:]
            yield _node_of(message, file, tflops)


def _messages_of(file: Path, content: bytes) -> Iterator[bytes]:
    """Yield the messages of a trace file, each of which follows its length as a varint."""
    at = number = 0
    require(bool(content), f"{printable(str(file))} is empty: it is no Chakra trace")
    while at < len(content):
        length = shift = 0
        while at < len(content) and shift < 7 * LONGEST_VARINT:
            byte = content[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        else:
            length = len(content)
        require(
            at + length <= len(content),
            f"{printable(str(file))} ends inside message {number}: the file is truncated, or no "
            "Chakra trace",
        )
        yield content[at : at + length]
        at, number = at + length, number + 1


def _node_of(message: Any, file: Path, tflops: float) -> TraceNode:
    """Return the node that a Chakra message describes."""
    from pillarbox.experiments.models.workloads.training.chakra_schema import (
        COLLECTIVES,
        NODE_TYPES,
        attributes_of,
    )

    where = f"{printable(str(file))}, node {message.id}"
    require(
        0 < message.type < len(NODE_TYPES),
        f"{where} has the unknown type {message.type}",
    )
    require(message.id < SIGN, f"{where}: numbers of nodes are smaller than {SIGN}")
    kind, known = NODE_TYPES[message.type], attributes_of(message)

    def number(*names: str, default: int = 0) -> int:
        value = next((known[name] for name in names if name in known), default)
        require(isinstance(value, int), f"{where}: the attribute {names[0]} is no whole number")
        return int(value)

    duration_us = message.duration_micros
    if duration_us >= SIGN:
        duration_us -= 2 * SIGN
    if not duration_us and tflops:
        duration_us = round(number("num_ops") / (tflops * 1e6))
    node: dict[str, Any] = {
        "number": message.id,
        "name": message.name,
        "after": tuple(dict.fromkeys([*message.ctrl_deps, *message.data_deps])),
        "on_cpu": bool(known.get("is_cpu_op", False)),
        PARALLELISM: printable(str(known.get(PARALLELISM, "")), LONGEST_LABEL),
    }
    if kind in (SEND, RECEIVE):
        peer = "comm_dst" if kind == SEND else "comm_src"
        node["peer"] = number(peer) if peer in known else None
        node["tag"] = number("comm_tag")
        node["size_bytes"] = number("comm_size", "tensor_size")
    elif kind == COLLECTIVE and (known.keys() & {"comm_type", "comm_size"} or not node["on_cpu"]):
        kind_number = number("comm_type", default=-1)
        require(
            0 <= kind_number < len(COLLECTIVES),
            f"{where} has the unknown collective operation {kind_number} (comm_type)",
        )
        node["operation"] = COLLECTIVES[kind_number]
        node["size_bytes"] = number("comm_size")
        node["group"] = str(known.get("pg_name", ""))
        node["root"] = number("root_rank")
        parts = known.get(PARTS, ())
        require(isinstance(parts, tuple), f"{where}: the attribute {PARTS} is no list of int64")
        node["parts"] = parts
    else:
        # Memory accesses occupy their rank as computations do, and so does the call by which a CPU
        # starts an accelerator's collective operation. Metadata takes no time.
        node["duration_us"] = 0 if kind == "metadata" else duration_us
        kind = COMPUTE
    return TraceNode(kind=kind, **node)


def write_trace(
    trace: Trace,
    folder: Path,
    name: str = "trace",
    times_us: Mapping[tuple[int, int], tuple[int, int]] | None = None,
) -> Sequence[Path]:
    """Write a trace into a folder, one file per rank and the process groups; return the files.

    `times_us` has the measured start and duration of nodes in microseconds, by rank and number.
    Raises PillarboxError if the folder has a trace of more ranks, since its further files would
    belong to this trace.
    """
    from pillarbox.experiments.models.workloads.training.chakra_schema import (
        Attribute,
        GlobalMetadata,
    )

    output_folder(folder)
    further = folder / f"{name}.{len(trace.ranks)}{SUFFIX}"
    require(
        not further.exists(),
        f"{printable(str(further))} belongs to a trace of more than {len(trace.ranks)} ranks: "
        "choose another folder, or remove its files",
    )
    files, known = [], times_us or {}
    groups = {key: list(members) for key, members in trace.groups.items()}
    try:
        for rank, nodes in enumerate(trace.ranks):
            metadata = GlobalMetadata(version=VERSION)
            metadata.attr.append(Attribute(name="rank", int64_val=rank))
            messages = [
                metadata,
                *(_message_of(node, rank, known.get((rank, node.number))) for node in nodes),
            ]
            files.append(folder / f"{name}.{rank}{SUFFIX}")
            write_atomically(files[-1], b"".join(map(_delimited, messages)))
        write_atomically(folder / GROUPS_FILE, json.dumps(groups).encode() + b"\n")
    except PillarboxError:
        for file in files:  # some ranks alone are no trace
            file.unlink(missing_ok=True)
        raise
    for file in (*files, folder / GROUPS_FILE):
        give_to_user(file)
    return files


def _message_of(node: TraceNode, rank: int, times_us: tuple[int, int] | None) -> Any:
    """Return the Chakra message of a node; a duration is stored as an unsigned number."""
    from pillarbox.experiments.models.workloads.training.chakra_schema import (
        COLLECTIVES,
        NODE_TYPES,
        Attribute,
        Int64List,
        Node,
    )

    start_us, duration_us = times_us or (0, node.duration_us)
    message = Node(
        id=node.number,
        name=node.name,
        type=NODE_TYPES.index(node.kind),
        ctrl_deps=node.after,
        start_time_micros=start_us,
        duration_micros=duration_us % (2 * SIGN),
    )

    def add(name: str, **value: Any) -> None:
        message.attr.append(Attribute(name=name, **value))

    add("is_cpu_op", bool_val=node.on_cpu)
    if node.kind in (SEND, RECEIVE):
        ends = {SEND: (rank, node.peer), RECEIVE: (node.peer, rank)}[node.kind]
        for name, end in zip(("comm_src", "comm_dst"), ends, strict=True):
            if end is not None:
                add(name, int32_val=end)
        add("comm_tag", int32_val=node.tag)
    if node.kind == COLLECTIVE:
        add("comm_type", int64_val=COLLECTIVES.index(node.operation))
        if node.group:
            add("pg_name", string_val=node.group)
        if node.parts:
            add(PARTS, int64_list=Int64List(values=node.parts))
        if node.root:
            add("root_rank", int64_val=node.root)
    if node.kind != COMPUTE:
        add("comm_size", int64_val=node.size_bytes)
    if node.parallelism:
        add(PARALLELISM, string_val=node.parallelism)
    return message


def _delimited(message: Any) -> bytes:
    """Return a protobuf message after its length as a varint."""
    content = bytes(message.SerializeToString())
    length, prefix = len(content), bytearray()
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + content
