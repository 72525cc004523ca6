"""The forwarding programs of a server: compiled where that is due, and tried out."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

from hosts.linux.bpf import BpfError, Object
from hosts.linux.calls import nowhere
from topos.base.errors import PillarboxError

SOURCE = Path(__file__).with_name("forward.bpf.c")
# In the Python environment: the checkout may be read-only, and is often somebody else's.
BUILD = Path(sys.prefix, "share", "pillarbox")
OBJECT = BUILD / "forward.bpf.o"
COMPILER = ("clang", "-O2", "-g", "-target", "bpf", "-mcpu=v3", "-fno-strict-aliasing")

LOOPBACK = 1  # the first interface of every namespace


def available() -> str:
    """Return why eBPF cannot be used here; nothing if it can: it is tried out where nobody is."""
    try:
        with nowhere():
            loaded = Object(build())
            try:
                loaded.attach("port_in", LOOPBACK, egress=False)
            finally:
                loaded.close()
    except PillarboxError as error:
        return str(error)
    return ""


def build() -> Path:
    """Return the object file of the forwarding programs, compiled if that is due."""
    sources = [*SOURCE.parent.glob("*.h"), SOURCE]
    try:
        if OBJECT.stat().st_mtime >= max(source.stat().st_mtime for source in sources):
            return OBJECT
    except FileNotFoundError:
        pass
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        made = OBJECT.with_suffix(f".{os.getpid()}")
        include = f"-I/usr/include/{platform.machine()}-linux-gnu"
        command = [*COMPILER, include, "-c", str(SOURCE), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            complaint = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise BpfError(
                f"{SOURCE.name} does not compile: {complaint or done.stderr.strip()} "
                "(it needs the headers of libbpf-dev and linux-libc-dev)"
            )
        made.replace(OBJECT)  # whoever else builds at this moment builds the same
    except FileNotFoundError:
        raise BpfError(f"{SOURCE.name} is not compiled: install clang and libbpf-dev") from None
    except OSError as error:
        raise BpfError(f"{SOURCE.name} cannot be compiled into {BUILD}: {error}") from None
    return OBJECT
