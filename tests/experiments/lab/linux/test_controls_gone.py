"""The kernel has nothing of a lab's congestion control after `down`, by bpf(2) and bpftool."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pillarbox.experiments.lab.linux import congestion
from pillarbox.hosts.linux.bpf import call_bpf
from tests.experiments.labs import wait_until
from tests.experiments.runs.control.test_commands import pillarbox

pytestmark = pytest.mark.root

# Commands of bpf(2), from linux/bpf.h: the next object's number, and a descriptor by number.
PROGRAMS, MAPS, LINKS = (11, 13), (12, 14), (31, 30)
INFO_BY_FD, INFO_BYTES = 15, 256
NAME_AT = {PROGRAMS: 64, MAPS: 24}  # offset of the name in bpf_prog_info and bpf_map_info
STRUCT_OPS_LINK, MAP_OF_LINK_AT = 9, 16
TRANSFER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as near, server.accept()[0] as far:
        near.sendall(bytes(50_000))
        print(len(far.recv(50_000, socket.MSG_WAITALL)),
              near.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).decode())
"""


@pytest.fixture(autouse=True)
def has_struct_ops() -> None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("this kernel has no BTF")


def infos(kind: tuple[int, int]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each object of a kind in the kernel, and what bpf(2) tells of it."""
    next_of, by_number = kind
    number = 0
    while True:
        request = ctypes.create_string_buffer(struct.pack("=II", number, 0), 128)
        try:
            call_bpf(next_of, request)
        except FileNotFoundError:
            return
        (number,) = struct.unpack_from("=I", request.raw, 4)
        with suppress(FileNotFoundError):  # it has ended meanwhile
            fd = call_bpf(by_number, struct.pack("=I", number))
            with closing(os.fdopen(fd, "rb", 0)):
                info = ctypes.create_string_buffer(INFO_BYTES)
                call_bpf(INFO_BY_FD, struct.pack("=IIQ", fd, INFO_BYTES, ctypes.addressof(info)))
                yield number, info.raw


def left_of(name: str) -> list[str]:
    """Return the programs, maps and links of a control that are in the kernel."""
    found, maps = [], set()
    for kind, what in ((PROGRAMS, "program"), (MAPS, "map")):
        for number, info in infos(kind):
            its_name = info[NAME_AT[kind] :][:16].split(b"\0")[0].decode()
            if its_name.startswith(name):
                found.append(f"{what} {its_name}")
                maps |= {number} if kind == MAPS else set()
    for number, info in infos(LINKS):
        kind_of_link, in_map = (struct.unpack_from("=I", info, at)[0] for at in (0, MAP_OF_LINK_AT))
        if kind_of_link == STRUCT_OPS_LINK and in_map in maps:
            found.append(f"link {number}")
    return found


@pytest.mark.parametrize("control", sorted(congestion.shipped()))
def test_nothing_of_a_control_stays_after_down(control: str, tmp_path: Path) -> None:
    # A name that no other lab on this machine has.
    name = f"{control[0]}{os.getpid() % 100_000:05}"
    file = tmp_path / f"{name}{congestion.SUFFIX}"
    file.write_text(congestion.shipped()[control].read_text().replace(control, name))
    assert not left_of(name)
    up = pillarbox("up", "tree,2,1", "--tcp", str(file), "--detach")
    lab = ("--lab", up.stdout.split()[1].rstrip(":"))
    try:
        moved = pillarbox("exec", *lab, "0.0", "python3", "-c", TRANSFER)
        assert moved.stdout.rstrip("\0\n") == f"50000 {name}", moved
        there = left_of(name)
        assert [one for one in there if one.startswith("map")] == [f"map {name}"]
        assert [one.split()[0] for one in there].count("link") == 1
        assert [one.split()[0] for one in there].count("program") >= 3
        assert name in congestion.in_kernel()
    finally:
        pillarbox("down", *lab)
    # The kernel frees objects some moments after the last reference to them.
    wait_until(lambda: not left_of(name), f"{name} stays in the kernel")
    assert name not in congestion.in_kernel()
    if shutil.which("bpftool"):
        said = subprocess.run(["bpftool", "struct_ops"], capture_output=True, text=True, check=True)
        assert name not in said.stdout
