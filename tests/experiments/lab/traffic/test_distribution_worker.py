"""The distribution's loop over connections of this machine: what is wrong does not go unnoticed."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pillarbox.experiments.lab.traffic.distribution_worker import (
    PIECE_BYTES,
    DistributionTask,
    FileDistributionLoop,
    GeneratedContent,
    PieceChecker,
)
from pillarbox.experiments.lab.traffic.generator_worker import ServerDeathReader
from pillarbox.experiments.models.workloads.flows import COMPLETED, FAILED, Flow
from tests.experiments.lab.traffic.connections import connected, task_of

SIZE = 40 * PIECE_BYTES + 77  # more than is made up at once
WRONG = "the receiver's data differs from the file that the source sent"


class Run:
    """A file from server 0 over some hops, of one tree or several, until its end."""

    def __init__(self, hops: list[tuple[int, int, int]], folder: Path, timeout_s: float = 20.0):
        log = folder / "events.jsonl"
        log.touch()
        names = {f"0.{server}": server for server in range(8)}
        self.task: DistributionTask = {
            **task_of(len(hops), names, timeout_s),
            "source": 0,
            "trees": [tree for tree, _, _ in hops],
            "seed": 1,
        }
        self.connections = [
            connected(Flow(number, sender, receiver, volume_bytes=SIZE))
            for number, (_, sender, receiver) in enumerate(hops)
        ]
        self.deaths = ServerDeathReader(str(log), 0, names)

    def outcomes(
        self, before: Callable[[FileDistributionLoop], object] = lambda loop: None
    ) -> list[tuple[str, str, int]]:
        """Return what becomes of each hop: status, reason, delivered bytes."""
        loop = FileDistributionLoop(self.connections, self.task, self.deaths)
        os.close(self.task["board"])
        before(loop)
        loop.run(time.monotonic())
        told = [loop.flow_result_fields(one) for one in self.connections]
        for one in self.connections:
            one.close()
        return [(status, reason, delivered) for status, reason, _, _, delivered, *_ in told]


WHOLE = (COMPLETED, "", SIZE)
CHAIN = [(0, 0, 1), (0, 1, 2), (0, 2, 3)]


def test_every_relay_passes_on_what_it_gets(tmp_path: Path) -> None:
    branches = [(0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 0, 2), (1, 2, 1), (1, 1, 3)]
    assert Run(branches, tmp_path).outcomes() == [WHOLE] * 6


def test_pieces_in_the_wrong_order_are_noticed_at_every_receiver(tmp_path: Path) -> None:
    def swap(loop: FileDistributionLoop) -> None:
        waiting = loop._hops[0].waiting
        waiting[3], waiting[4] = waiting[4], waiting[3]

    told = Run(CHAIN, tmp_path).outcomes(swap)
    assert told[0] == (FAILED, WRONG, SIZE)
    # The others get them before that is known, or the end is kept from them.
    assert all(status == FAILED for status, _, _ in told)
    assert {reason for _, reason, _ in told[1:]} <= {
        WRONG,
        "the relay server 0.1 had no more to pass on",
        "the relay server 0.2 had no more to pass on",
    }


def test_one_wrong_bit_is_noticed(tmp_path: Path) -> None:
    def flip(loop: FileDistributionLoop) -> None:
        waiting = loop._hops[0].waiting
        piece = bytearray(waiting[5])
        piece[1234] ^= 1
        waiting[5] = memoryview(bytes(piece))

    assert Run(CHAIN[:1], tmp_path).outcomes(flip) == [(FAILED, WRONG, SIZE)]


def test_a_hop_that_was_never_connected_strands_those_behind_it(tmp_path: Path) -> None:
    run = Run([*CHAIN, (1, 0, 3)], tmp_path)
    run.connections[1].fail("could not connect")
    told = run.outcomes()
    assert told[0] == told[3] == WHOLE
    assert [reason for _, reason, _ in told[1:3]] == [
        "could not connect",
        "the relay server 0.2 had no more to pass on",
    ]


def test_a_connection_that_breaks_in_the_middle_strands_those_behind_it(tmp_path: Path) -> None:
    def stop(loop: FileDistributionLoop) -> None:
        loop._hops[0].waiting.clear()  # as much as that never comes
        loop._hops[0].generated = iter(())
        taken = loop.connections[0].sender
        assert taken is not None
        threading.Timer(0.1, lambda: taken.shutdown(socket.SHUT_RDWR)).start()

    told = Run(CHAIN, tmp_path).outcomes(stop)
    assert [status for status, _, _ in told] == [FAILED] * 3
    assert told[0][1].startswith("its connection")
    assert told[2][1] == "the relay server 0.2 had no more to pass on"


def test_who_gets_nothing_fails_at_the_end_of_the_time(tmp_path: Path) -> None:
    def stop(loop: FileDistributionLoop) -> None:
        loop._hops[0].waiting.clear()
        loop._hops[0].generated = iter(())

    told = Run(CHAIN[:2], tmp_path, timeout_s=0.2).outcomes(stop)
    assert [status for status, _, _ in told] == [FAILED] * 2
    assert told[0][1].startswith("no end within 0.2 s: 0 of")


def test_a_relay_keeps_no_more_than_others_still_need(tmp_path: Path) -> None:
    run = Run(CHAIN, tmp_path)
    kept: list[FileDistributionLoop] = []
    run.outcomes(kept.append)
    assert all(not hop.waiting for hop in kept[0]._hops)


@pytest.mark.parametrize("step", [1000, PIECE_BYTES, 3 * PIECE_BYTES])
def test_what_arrives_is_compared_in_portions_of_any_size(step: int) -> None:
    file = b"".join(GeneratedContent(1).pieces(0, SIZE))

    def right(arrived: bytes) -> bool:
        held = PieceChecker(GeneratedContent(1).pieces(0, SIZE))
        for begin in range(0, len(arrived), step):
            held.check(arrived[begin : begin + step])
        return held.matches

    assert right(file)
    for place in (0, PIECE_BYTES - 1, PIECE_BYTES, SIZE - 1):
        assert not right(file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :])
    assert not right(file + b"\0")


@pytest.mark.parametrize("size", [1, 8, PIECE_BYTES, PIECE_BYTES + 1, SIZE])
def test_a_file_is_as_long_as_it_should_be_and_no_piece_is_like_another(size: int) -> None:
    content = GeneratedContent(1)
    pieces = list(content.pieces(0, size))
    assert sum(map(len, pieces)) == size
    assert len(set(pieces)) == len(pieces)
    assert b"".join(pieces) == b"".join(GeneratedContent(1).pieces(0, size))


def test_files_differ_by_tree_by_seed_and_beyond_the_period() -> None:
    files = {
        b"".join(GeneratedContent(seed).pieces(tree, SIZE)) for seed in (1, 2) for tree in (0, 1)
    }
    assert len(files) == 4
    long = [bytes(piece) for piece in GeneratedContent(1).pieces(0, 1100 * PIECE_BYTES)]
    assert len({piece[8:] for piece in long}) > 250  # not the period's sixteen
    assert len(set(long)) == len(long)
