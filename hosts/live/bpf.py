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

FORWARD, LIVENESS = (Path(__file__).with_name(f"{each}.bpf.c") for each in ("forward", "liveness"))
# In the Python environment: the checkout may be read-only, and is often somebody else's.
BUILD = Path(sys.prefix, "share", "pillarbox")
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


def build(source: Path = FORWARD) -> Path:
    """Return the object file of a source, compiled if that is due."""
    target = BUILD / source.with_suffix(".o").name
    sources = [*source.parent.glob("*.h"), source]
    try:
        if target.stat().st_mtime >= max(each.stat().st_mtime for each in sources):
            return target
    except FileNotFoundError:
        pass
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        made = target.with_suffix(f".{os.getpid()}")
        include = f"-I/usr/include/{platform.machine()}-linux-gnu"
        command = [*COMPILER, include, "-c", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            complaint = next((line for line in done.stderr.splitlines() if "error" in line), "")
            raise BpfError(
                f"{source.name} does not compile: {complaint or done.stderr.strip()} "
                "(it needs the headers of libbpf-dev and linux-libc-dev)"
            )
        made.replace(target)  # whoever else builds at this moment builds the same
    except FileNotFoundError:
        raise BpfError(f"{source.name} is not compiled: install clang and libbpf-dev") from None
    except OSError as error:
        raise BpfError(f"{source.name} cannot be compiled into {BUILD}: {error}") from None
    return target
