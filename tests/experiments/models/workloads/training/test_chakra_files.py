"""Chakra trace files: published bytes, round trips, and files that are no traces."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox.experiments.models.workloads.training import chakra_files
from pillarbox.experiments.models.workloads.training.chakra_files import (
    GROUPS_FILE,
    read_trace,
    write_trace,
)
from pillarbox.experiments.models.workloads.training.chakra_schema import (
    ATTRIBUTE_TYPES,
    Attribute,
    GlobalMetadata,
    Node,
    attributes_of,
)
from pillarbox.experiments.models.workloads.training.trace import COMPUTE, Trace, TraceNode
from pillarbox.experiments.models.workloads.training.transformer import Transformer
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace

# examples/workload/microbenchmarks/all_reduce/4npus_1MB/all_reduce.1.et of ASTRA-sim, commit
# 518bd513, which Chakra's own protobuf classes wrote (MIT License, Copyright (c) 2023 Georgia
# Institute of Technology, Facebook Inc).
ASTRA_SIM = bytes.fromhex(
    "070a05302e302e344a08011214616c6c5f7265647563655f346e7075735f314d421807520e0a0969735f6370755f"
    "6f70d80100520d0a09636f6d6d5f747970654800520f0a09636f6d6d5f73697a6548808040"
)


def written(folder: Path, trace: Trace) -> str:
    write_trace(trace, folder)
    return str(folder / "trace.%d.et")


def test_published_example_is_read(tmp_path: Path) -> None:
    (tmp_path / "all_reduce.et").write_bytes(ASTRA_SIM)
    found = read_trace(str(tmp_path / "all_reduce.et"), ranks=4)
    assert len(found.ranks) == 4
    (node,) = found.ranks[3]
    assert (node.number, node.name, node.operation) == (1, "all_reduce_4npus_1MB", "all-reduce")
    assert (node.size_bytes, node.group, node.on_cpu) == (1 << 20, "", False)


def test_a_folder_with_a_trace_of_more_ranks_is_refused(tmp_path: Path) -> None:
    written(tmp_path, Transformer(dp=4).trace())
    with pytest.raises(
        PillarboxError, match=r"trace\.2\.et belongs to a trace of more than 2 ranks"
    ):
        write_trace(Transformer(dp=2).trace(), tmp_path)
    written(tmp_path, Transformer(dp=4).trace())
    path = written(tmp_path, Transformer(dp=8).trace())
    assert len(read_trace(path).ranks) == 8


def test_a_parallelism_has_no_control_characters(tmp_path: Path) -> None:
    node = TraceNode(0, "one", COMPUTE, duration_us=1, parallelism="\x1b[31mred" + "x" * 100)
    (read,) = read_trace(written(tmp_path, Trace(((node,),)))).ranks[0]
    assert read.parallelism.startswith("\\x1b[31mredx")
    assert len(read.parallelism) <= chakra_files.LONGEST_LABEL + 3


@pytest.mark.parametrize(
    "trace",
    [
        drawn_trace(),
        Transformer(tp=2, pp=2, dp=2, ep=2, experts=4).trace(),
        Transformer(dp=2, ep=2, experts=2, gate=(0.9, 0.1)).trace(),
    ],
)
def test_written_traces_are_read_again(trace: Trace, tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, trace)) == trace


def test_times_of_a_run_are_written(tmp_path: Path) -> None:
    trace = Trace(((TraceNode(3, "a", COMPUTE, (), 5),),))
    write_trace(trace, tmp_path, times_us={(0, 3): (70, 6)})
    content = (tmp_path / "trace.0.et").read_bytes()
    messages = list(chakra_files._messages_of(tmp_path, content))
    node = Node.FromString(messages[1])
    assert (node.start_time_micros, node.duration_micros) == (70, 6)
    assert GlobalMetadata.FromString(messages[0]).version == chakra_files.VERSION


@given(st.sampled_from(ATTRIBUTE_TYPES), st.integers(0, 2**31 - 1))
def test_attributes_of_all_types_are_read(kind: str, number: int) -> None:
    value = {"string": str(number), "bytes": str(number).encode(), "bool": number % 2 == 0}.get(
        kind, float(number % 1024) if kind in ("double", "float") else number
    )
    node = Node(attr=[Attribute(name="x", **{f"{kind}_val": value})])
    assert attributes_of(Node.FromString(node.SerializeToString())) == {"x": value}


@given(st.integers(1, 99_999))
def test_lengths_of_any_size_are_read(size: int) -> None:
    message = Node(name="x" * size)
    content = chakra_files._delimited(message) * 2
    found = list(chakra_files._messages_of(Path("file"), content))
    assert found == [message.SerializeToString()] * 2


def test_operations_give_the_duration_where_it_is_missing(tmp_path: Path) -> None:
    node = Node(id=1, type=4, attr=[Attribute(name="num_ops", int64_val=3_000_000)])
    content = b"".join(map(chakra_files._delimited, (GlobalMetadata(), node)))
    (tmp_path / "a.0.et").write_bytes(content)
    path = str(tmp_path / "a.%d.et")
    assert read_trace(path, tflops=0.5).ranks[0][0].duration_us == 6
    assert read_trace(path).ranks[0][0].duration_us == 0


def test_negative_duration(tmp_path: Path) -> None:
    path = written(tmp_path, Trace(((TraceNode(0, "a", COMPUTE, (), -5),),)))
    with pytest.raises(PillarboxError, match="negative duration: -5 microseconds"):
        read_trace(path)


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_truncated_file(cut: int, tmp_path: Path) -> None:
    path = written(tmp_path, drawn_trace())
    file = tmp_path / "trace.2.et"
    file.write_bytes(file.read_bytes()[:-cut])
    with pytest.raises(PillarboxError, match=r"trace\.2\.et ends inside message 5: the file is"):
        read_trace(path)


@given(content=st.binary(max_size=200))
def test_any_other_file_is_refused_or_read(content: bytes) -> None:
    with suppress(PillarboxError):
        messages = chakra_files._messages_of(Path("x"), content)
        assert sum(map(len, messages)) < len(content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"\xff" * 12, "truncated, or no Chakra trace"),
        (b"\x02\xff\xff", "does not begin with metadata"),
        (b"\x00\x02\xff\xff", "message 1 is no node"),
        (b"\x00\x02\x18\x63", "unknown type 99"),
        (b"\x00\x02\x18\x07", "unknown collective operation -1"),
        (b"\x00\x0d\x18\x04\x08" + b"\x80" * 9 + b"\x01", "numbers of nodes are smaller"),
    ],
)
def test_no_trace(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.0.et").write_bytes(content)
    with pytest.raises(PillarboxError, match=sentence):
        read_trace(str(tmp_path / "a.%d.et"))


def test_largest_number_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "a.0.et").write_bytes(b"\x00\x0c\x18\x04\x08" + b"\xff" * 8 + b"\x7f")
    ((node,),) = read_trace(str(tmp_path / "a.%d.et")).ranks
    assert node.number == 2**63 - 1


def test_enormous_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, drawn_trace())
    largest = max(file.stat().st_size for file in tmp_path.glob("*.et"))
    monkeypatch.setattr(chakra_files, "MOST_FILE_BYTES", largest)
    read_trace(path)
    monkeypatch.setattr(chakra_files, "MOST_FILE_BYTES", largest - 1)
    with pytest.raises(PillarboxError, match="is larger than"):
        read_trace(path)


def test_pipe_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.0.et")
    with pytest.raises(PillarboxError, match="is not a regular file"):
        read_trace(str(tmp_path / "trace.%d.et"))


def test_too_many_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, drawn_trace())
    monkeypatch.setattr(chakra_files, "MOST_NODES", 20)
    read_trace(path)
    monkeypatch.setattr(chakra_files, "MOST_NODES", 19)
    with pytest.raises(PillarboxError, match="at most 19 nodes"):
        read_trace(path)


def test_missing_files_and_groups(tmp_path: Path) -> None:
    path = written(tmp_path, drawn_trace())
    with pytest.raises(PillarboxError, match=r"no trace file .*trace\.4\.et"):
        read_trace(path, ranks=5)
    with pytest.raises(PillarboxError, match=r"no trace file .*other\.0\.et"):
        read_trace(str(tmp_path / "other.%d.et"))
    with pytest.raises(PillarboxError, match="one file for all ranks: set their number"):
        read_trace(str(tmp_path / "trace.0.et"))
    for content in ("[", '{"1": 3}', '{"1": [true]}', "[" * 100_000, '["1"]'):
        (tmp_path / GROUPS_FILE).write_text(content)
        with pytest.raises(PillarboxError, match="has no process groups: write"):
            read_trace(path)
    (tmp_path / GROUPS_FILE).unlink()
    with pytest.raises(PillarboxError, match="unknown process group '1'"):
        read_trace(path)
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps({"1": [0, 1, 2, 3]}))
    assert read_trace(path, groups=str(groups)) == drawn_trace()
    with pytest.raises(PillarboxError, match="cannot be read"):
        read_trace(path, groups=str(tmp_path / "none.json"))


def test_unwritable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PillarboxError, match="cannot be created"):
        write_trace(drawn_trace(), tmp_path / "file" / "folder")


def test_traces_converted_from_pytorch(tmp_path: Path) -> None:
    """Control dependencies are call stacks, some nodes are missing, and CPUs call collectives."""
    called = Node(id=1, type=4, ctrl_deps=[2], data_deps=[7], duration_micros=5)
    caller = Node(id=2, type=7, ctrl_deps=[1], data_deps=[1], duration_micros=6)
    caller.attr.append(Attribute(name="is_cpu_op", bool_val=True))
    content = b"".join(map(chakra_files._delimited, (GlobalMetadata(), called, caller)))
    (tmp_path / "a.0.et").write_bytes(content)
    path = str(tmp_path / "a.%d.et")
    with pytest.raises(PillarboxError, match="needs --pytorch"):
        read_trace(path)
    found = read_trace(path, pytorch=True).ranks[0]
    assert [(node.kind, node.after, node.on_cpu) for node in found] == [
        (COMPUTE, (), False),
        (COMPUTE, (1,), True),
    ]


def test_a_trace_that_cannot_be_written_leaves_no_ranks(tmp_path: Path) -> None:
    trace = Transformer(dp=2, layers=1, hidden=64).trace()
    (tmp_path / GROUPS_FILE).mkdir()  # the last file, in place of a full disk
    with pytest.raises(PillarboxError, match="cannot be written"):
        write_trace(trace, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [GROUPS_FILE]
