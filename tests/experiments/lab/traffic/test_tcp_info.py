"""struct tcp_info: what is declared is what the kernel means."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from pillarbox.experiments.lab.traffic.tcp_info import FIELDS, SIZE, parsed_tcp_info, tcp_info

HEADER = Path("/usr/include/linux/tcp.h")
C_TYPES = {"__u8": "B", "__u32": "I", "__u64": "Q"}
ESTABLISHED = 1


def test_tells_what_a_connection_did() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            client.sendall(bytes(5000))
            received = len(server.recv(5000, socket.MSG_WAITALL))
            info, far = tcp_info(client), tcp_info(server)
    assert info["state"] == ESTABLISHED
    assert far["bytes_received"] == received == 5000
    assert 0 < info["rtt"] < 1_000_000
    assert 0 < info["snd_cwnd"] < 10_000
    assert 500 < info["snd_mss"] <= 65536
    assert info["total_retrans"] == 0


def test_older_kernels_tell_less() -> None:
    assert list(parsed_tcp_info(bytes(SIZE))) == [name for name, _ in FIELDS]
    assert list(parsed_tcp_info(bytes(104)))[-1] == "total_retrans"
    assert list(parsed_tcp_info(bytes(107)))[-1] == "total_retrans"  # a field cut in two is none
    assert parsed_tcp_info(bytes(SIZE + 100)) == parsed_tcp_info(bytes(SIZE))


def test_nothing_is_padded() -> None:
    codes = "".join(code for _, code in FIELDS)
    assert struct.calcsize(f"@{codes}") == struct.calcsize(f"={codes}") == SIZE


@pytest.mark.skipif(not HEADER.exists(), reason=f"needs {HEADER} (linux-libc-dev)")
def test_order_and_types_are_the_kernels() -> None:
    text = HEADER.read_text().partition("struct tcp_info {")[2].partition("};")[0]
    said = []
    for line in text.replace(" ", "\t").splitlines():
        words = line.split()
        bits = any(":" in word for word in words[:4])
        if words and words[0] in C_TYPES and not bits:
            said.append((words[1].removeprefix("tcpi_").rstrip(";"), C_TYPES[words[0]]))
    declared = [field for field in FIELDS if field[0] not in ("wscale", "app_limited")]
    assert said[: len(declared)] == declared
