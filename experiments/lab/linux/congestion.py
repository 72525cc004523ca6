"""TCP congestion controls of a lab: the kernel's, those shipped in `controls`, and a user's files.

A control is chosen by a word: a name that the kernel knows (``cubic``), the name of a shipped
control (``dctcp``), or a file ``NAME.bpf.c``. The lab compiles and registers it, and makes it the
default of its servers; it ends with the lab. The machine's default never changes.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pillarbox.hosts.linux.bpf import may_load_programs
from pillarbox.hosts.linux.struct_ops import CongestionControl, NameTakenError
from pillarbox.hosts.live.lab_programs import COMPILER, compile_into
from pillarbox.topos.base.errors import (
    NotPermittedError,
    PillarboxError,
    UnsupportedError,
    meant,
    require,
)

CONTROLS = Path(__file__).parents[1] / "controls"
SUFFIX = ".bpf.c"
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
# controls that the kernel lets namespaces have as their default
ALLOWED = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
DEFAULT = "net/ipv4/tcp_congestion_control"  # sysctl of each network namespace
NAME = re.compile(r"[a-z][a-z0-9_]{0,11}")  # the kernel has room for 15 characters
TRIES = 99  # labs at the same time that register a control of the same name


def shipped() -> dict[str, Path]:
    """Return the source files of the shipped controls by name.

    >>> sorted(shipped())
    ['dctcp', 'delay', 'scalable']
    """
    return {file.name.removesuffix(SUFFIX): file for file in CONTROLS.glob(f"*{SUFFIX}")}


def in_kernel() -> list[str]:
    """Return the names of the controls that this network namespace can use now."""
    return AVAILABLE.read_text().split()


def source_of(word: str) -> Path | None:
    """Return the source of a control, None if the kernel has it; raise PillarboxError if unknown.

    >>> source_of("reno")
    """
    if word.endswith(SUFFIX):
        file = Path(word)
        require(file.is_file(), f"there is no file {word}")
        name = file.name.removesuffix(SUFFIX)
        require(
            NAME.fullmatch(name) is not None,
            f"{file.name}: a control's name is its file's: at most 12 lower-case letters, digits "
            "and underscores, a letter first",
        )
        return file
    known = shipped()
    if word in known:
        return known[word]
    there = in_kernel()
    require(
        word in there,
        f"there is no TCP congestion control {word!r}: {meant(word, [*there, *known])}, or name a "
        f"file NAME{SUFFIX}",
    )
    return None


def check_default(word: str) -> None:
    """Raise PillarboxError if a lab's servers cannot have a control as their default."""
    if source_of(word) is None:
        allowed = ALLOWED.read_text().split()
        require(
            word in allowed,
            f"this kernel lets a lab's servers have {', '.join(allowed)} as their default control, "
            f"not {word}: write `tcp` in an experiment, or allow it on this machine by `sysctl -w "
            f"net.ipv4.tcp_allowed_congestion_control='{' '.join([*allowed, word])}'`",
            UnsupportedError,
        )


def registered(source: Path) -> CongestionControl:
    """Compile and register a control; its name in the kernel is its file's, or ``NAME_2``, ...

    Another lab may have registered a control of that name, perhaps from another file.
    """
    require(
        may_load_programs(),
        f"{source.name} is a control in eBPF, which needs root: use sudo",
        NotPermittedError,
    )
    name = source.name.removesuffix(SUFFIX)
    for number in range(1, TRIES + 1):
        in_kernel_as = name if number == 1 else f"{name}_{number}"
        try:
            with tempfile.TemporaryDirectory() as folder:
                made = _compiled(source, Path(folder), in_kernel_as)
                control = CongestionControl(made, source.name)
        except NameTakenError:
            continue
        with _closed_on_error(control):
            require(
                control.name == name,
                f"{source.name} declares CONTROL({control.name}, ...): write CONTROL({name}, ...)",
            )
            require(
                in_kernel_as in in_kernel(),
                f"{source.name} sets a .name of its own: omit it, CONTROL does it",
            )
        control.name = in_kernel_as
        return control
    raise PillarboxError(f"{TRIES} labs use a control of the name {name}: end some with `down`")


@contextmanager
def _closed_on_error(control: CongestionControl) -> Iterator[None]:
    try:
        yield
    except BaseException:
        control.close()
        raise


def _compiled(source: Path, folder: Path, name: str) -> Path:
    """Compile a control into an object file; its name in the kernel is `name`."""
    require(
        shutil.which(COMPILER[0]) is not None,
        f"{source.name} is not compiled: install clang and libbpf-dev",
        UnsupportedError,
    )
    made = folder / f"{name}.bpf.o"
    compile_into(made, source, f'-DCONTROL_NAME="{name}"', f"-I{CONTROLS}")
    return made


@contextmanager
def control_in_use(word: str) -> Iterator[str]:
    """Yield a control's name in the kernel, registered until the block ends if it has a source."""
    source = source_of(word)
    if source is None:
        yield word
        return
    with closing(registered(source)) as control:
        yield control.name
