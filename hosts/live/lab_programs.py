"""A lab's eBPF programs: compiled if needed, loaded once for all servers, and probed for support.

The kernel takes 20 ms to load and verify the programs, and a processor runs one program text faster
than hundreds of copies. The tables of a single server (its decisions, its bell) are entries of
tables of tables; in all other tables, shared by the servers, each server has its own entries. The
server's number, by which programs find both, is stored by its `EntryPrograms`, which ends with the
server's process.
"""

from __future__ import annotations

import hashlib
import os
import platform
import struct
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Any

from pillarbox.hosts.base.network import headers
from pillarbox.hosts.linux import tcx
from pillarbox.hosts.linux.bpf import BpfError, BpfObject, Map, may_load_programs
from pillarbox.hosts.linux.calls import in_new_namespace
from pillarbox.hosts.linux.entrance import EntryPrograms
from pillarbox.hosts.live import generated
from pillarbox.topos.base.errors import PillarboxError, require

FORWARD, LIVENESS, TUNNELS = (
    Path(__file__).with_name(f"{each}.bpf.c") for each in ("forward", "liveness", "tunnels")
)
# Compiled eBPF programs are stored in the Python environment: the checkout may be read-only.
BUILD = Path(sys.prefix, "share", "pillarbox")
COMPILER = ("clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fno-strict-aliasing")

COMPILE_S = 300.0  # upper bound for the compilation of a program, in seconds
LOOPBACK = 1  # index of the loopback interface, the first of every namespace

# Number of entries in each eBPF map per server, and per link of a server.
_NUMBER = struct.Struct("=I")
OWN = ("flows", "relays", "bells")  # maps of maps, with one inner map per server
OF_A_SERVER = dict.fromkeys((*OWN, "configs", "counters"), 1) | {"budgets": 256}
BY_SERVER = ("budgets",)  # eBPF maps whose keys start with the server's number
BY_LINK = ("links", "answers")  # eBPF maps with the same number of entries for each server
# Hash table entries per link, so that the kernel usually finds a link within two probes.
LINKS_ROOM = 1.5


class LabPrograms:
    """eBPF programs and maps loaded into the kernel once and shared by all servers of a lab.

    Parameters
    ----------
    source : Path
        `FORWARD`, or `LIVENESS` if Python forwards packets.
    servers : int
        Upper bound for the number of servers: tables have a fixed size.
    links : int
        Upper bound for the number of neighbours of a server.
    """

    def __init__(self, source: Path, servers: int = 1, links: int = 1) -> None:
        entries = {name: servers * each for name, each in OF_A_SERVER.items()}
        self.servers, self.room = servers, 1 << (ceil(links * LINKS_ROOM) - 1).bit_length()
        entries |= dict.fromkeys((*BY_LINK, "vouched"), servers * self.room)
        self.loaded = BpfObject(build(source), entries)
        self.by_filters = not tcx.detaches_fast()

    def handover(self) -> tuple[dict[str, Any], list[int]]:
        """Return a description and open files by which another process uses the eBPF programs."""
        described, files = self.loaded.handover()
        own = {"servers": self.servers, "room": self.room, "by_filters": self.by_filters}
        return {**own, "loaded": described}, files

    @classmethod
    def from_handover(cls, described: Mapping[str, Any], files: Sequence[int]) -> LabPrograms:
        """Return a lab's eBPF programs that another process described by `handover`."""
        made = cls.__new__(cls)
        made.servers, made.room = described["servers"], described["room"]
        made.by_filters = described["by_filters"]
        made.loaded = BpfObject.from_handover(described["loaded"], files)
        return made

    def view_of(self, server: int) -> ServerPrograms:
        """Return a server's view of the lab's eBPF programs; call this in the server's process."""
        most = f"{self.servers} servers at most can run here: start the lab anew, larger"
        require(server < self.servers, most)
        return ServerPrograms(self, server)

    def links_of(self, server: int) -> range:
        """Return the table indices reserved for a server's links, a power of two."""
        return range(server * self.room, (server + 1) * self.room)

    def forget_servers(self, servers: Collection[int]) -> None:
        """Remove servers that have ended from all eBPF maps of the lab.

        One call for many servers reads the tables of all servers once, and not once per server.
        """
        maps, keys = self.loaded.maps, {_NUMBER.pack(server) for server in servers}
        for table in (maps[name] for name in BY_LINK):
            for place in chain.from_iterable(map(self.links_of, servers)):
                table[_NUMBER.pack(place)] = bytes(table.value_size)
        for name in maps.keys() & BY_SERVER:
            left = [one for one, _ in maps[name].items() if one[: _NUMBER.size] in keys]
            for each in left:
                maps[name].discard(each)
        for name in maps.keys() & OWN:
            for key in keys:
                maps[name].discard(key)


class ServerPrograms:
    """One server's view of a lab's eBPF programs, with the shared maps and the server's own."""

    def __init__(self, lab: LabPrograms, server: int) -> None:
        self.lab, self.server, self.key = lab, server, _NUMBER.pack(server)
        self.programs, self.enums = lab.loaded.programs, lab.loaded.enums
        self.maps = dict(lab.loaded.maps)
        self._entrance = EntryPrograms(server, lab.room, by_filters=lab.by_filters)
        self._own: list[Map] = []

    def add_own_map(self, name: str, entries: int | None = None) -> Map:
        """Create this server's own eBPF map of that name."""
        made = self.maps[name] = self.lab.loaded.add_inner_map(name, self.server, entries)
        self._own.append(made)
        return made

    def attach(self, program: str, ifindex: int, *, egress: bool) -> None:
        """Attach an eBPF program to this server's interface, for outgoing or incoming packets."""
        self._entrance.attach(self.programs[program], ifindex, egress=egress)

    def close(self) -> None:
        """Detach the eBPF programs of this server and close its own maps."""
        self._entrance.close()
        for each in self._own:
            os.close(each.fd)
        self._own = []


class SingleServerPrograms(ServerPrograms):
    """eBPF programs loaded for a single server instead of a lab, for tests."""

    def __init__(self, source: Path, links: int = 1) -> None:
        super().__init__(LabPrograms(source, 1, links), 0)

    def close(self) -> None:
        """Detach the eBPF programs of a single server and close all their maps."""
        super().close()
        self.lab.loaded.close()


def available(source: Path | None = None) -> str:
    """Return the reason why eBPF is unusable on this machine, "" if a test in a namespace works."""
    if not may_load_programs():
        return "only root may load eBPF programs: use sudo"
    try:
        with in_new_namespace():
            loaded = SingleServerPrograms(source or FORWARD)
            try:
                loaded.attach("port_in", LOOPBACK, egress=False)
            finally:
                loaded.close()
    except PillarboxError as error:
        return str(error)
    return ""


def build(source: Path = FORWARD) -> Path:
    """Return the path of a C source's eBPF object file; compile it if it is missing."""
    try:
        return compiled_once(object_file(source), partial(compile_into, source=source))
    except FileNotFoundError:
        raise BpfError(f"{source.name} is not compiled: install clang and libbpf-dev") from None
    except OSError as error:
        raise BpfError(f"{source.name} cannot be compiled into {BUILD}: {error}") from None


def compiled_once(found: Path, compile_to: Callable[[Path], None]) -> Path:
    """Return a compiled file; if it is missing, create it by `compile_to`, called with a path."""
    if found.exists():
        return found
    # Imported only here, as in compile_into: it would slow down the start of every server.
    import tempfile

    found.parent.mkdir(parents=True, exist_ok=True)
    # A process number would not be unique: threads and PID namespaces compile side by side.
    with tempfile.TemporaryDirectory(dir=found.parent) as folder:
        made = Path(folder, found.name)
        compile_to(made)
        made.replace(found)  # atomic: a concurrent call writes the same content
    return found


@cache  # cached, since every server of a lab asks for the object file
def object_file(source: Path = FORWARD) -> Path:
    """Return the path of an eBPF object file; its name has a hash of sources and packet headers."""
    files = [source, *sorted(source.parent.glob("*.h"))]
    texts = [*COMPILER, *(file.read_text(encoding="utf-8") for file in files)]
    text = "\0".join([*texts, generated.c_source(headers())])
    name = source.name.partition(".")[0]
    return BUILD / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.bpf.o"


def compile_into(made: Path, source: Path = FORWARD, *options: str) -> None:
    """Compile an eBPF C source into an object file, or raise BpfError."""
    # Imported only here: fork handlers of these modules would slow down the start of every server.
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "generated.h").write_text(generated.c_source(headers()), encoding="utf-8")
        include = [f"-I/usr/include/{platform.machine()}-linux-gnu", f"-I{folder}"]
        command = [*COMPILER, *options, *include, "-c", str(source), "-o", str(made)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=COMPILE_S
            )
        except subprocess.TimeoutExpired:
            raise BpfError(f"{source.name} does not compile within {COMPILE_S:g} s") from None
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), "")
        needs = " (it needs the headers of libbpf-dev and linux-libc-dev)"
        raise BpfError(
            f"{source.name} does not compile: {complaint or done.stderr.strip()}"
            f"{needs if 'file not found' in complaint else ''}"
        )
