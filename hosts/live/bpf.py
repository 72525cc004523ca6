"""The forwarding programs of a server: compiled where that is due, and tried out."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from hosts.base.network import headers
from hosts.linux.bpf import BpfError, Object
from hosts.linux.calls import nowhere
from hosts.live import generated
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
    found = object_file(source)
    if found.exists():
        return found
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        made = found.with_suffix(f".{os.getpid()}")
        compile_into(made, source)
        made.replace(found)  # whoever else builds at this moment builds the same
    except FileNotFoundError:
        raise BpfError(f"{source.name} is not compiled: install clang and libbpf-dev") from None
    except OSError as error:
        raise BpfError(f"{source.name} cannot be compiled into {BUILD}: {error}") from None
    return found


@cache  # asked for by each of a lab's servers
def object_file(source: Path = FORWARD) -> Path:
    """Return where the programs are, for the headers of all networks: by a hash of their text."""
    files = [source, *sorted(source.parent.glob("*.h"))]
    texts = [*COMPILER, *(file.read_text(encoding="utf-8") for file in files)]
    text = "\0".join([*texts, generated.source(headers())])
    name = source.name.partition(".")[0]
    return BUILD / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.bpf.o"


def compile_into(made: Path, source: Path = FORWARD, *options: str) -> None:
    """Compile the programs, or raise BpfError."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "generated.h").write_text(generated.source(headers()), encoding="utf-8")
        include = [f"-I/usr/include/{platform.machine()}-linux-gnu", f"-I{folder}"]
        command = [*COMPILER, *options, *include, "-c", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), "")
        raise BpfError(
            f"{source.name} does not compile: {complaint or done.stderr.strip()} "
            "(it needs the headers of libbpf-dev and linux-libc-dev)"
        )
