"""TCP congestion controls written in eBPF (struct_ops): load one, and register it while it is held.

A registration belongs to an open file (a BPF link). The kernel ends it when the file is closed, at
the latest when the process ends; connections that use the control keep it until they end.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from hosts.linux.bpf import (
    BpfError,
    call_bpf,
    libbpf,
    libbpf_items,
    refusal_error,
    warnings_of_libbpf,
)

LINK_CREATE = 28  # command number of bpf(2)
STRUCT_OPS_MAP, STRUCT_OPS_ATTACH = 26, 44  # map type and attach type, from linux/bpf.h
AS_LINK = 1 << 13  # BPF_F_LINK: the map's content is registered by a link, from Linux 6.4 on
SOURCE_LINE = re.compile(
    r"^; .* @ (?P<file>\S+):(?P<line>\d+)$"
)  # source line in the verifier's log
# Begin of the log of a function that no member of the control names: the kernel has no use for it.
UNNAMED = re.compile(r"^prog '(?P<name>\w+)': -- BEGIN PROG LOAD LOG --$")
NOT_SUPPORTED = 524  # ENOTSUPP, which only the kernel defines
NEEDED = "a control needs ssthresh, cong_avoid and undo_cwnd"
# First words of lines of the verifier's log about its own state, which follow the cause.
STATES = ("cur state:", "old state:")
STATISTICS = "processed "  # first word of the verifier's last line
_Pointer = ctypes.c_void_p


class NameTakenError(BpfError):
    """Error: the kernel has a congestion control of that name already."""


class CongestionControl:
    """A congestion control of an eBPF object file, registered until `close`.

    `name` is the variable in the file that declares the control.
    """

    def __init__(self, path: Path, file: str) -> None:
        library = libbpf()
        warnings = warnings_of_libbpf()
        address = library.bpf_object__open_file(str(path).encode(), None)
        if not address:
            raise refusal_error(f"{file} cannot be read", ctypes.get_errno(), "".join(warnings[:1]))
        opened = _Pointer(address)
        try:
            maps = [
                one
                for one in libbpf_items(library.bpf_object__next_map, opened)
                if library.bpf_map__type(one) == STRUCT_OPS_MAP
            ]
            if len(maps) != 1:
                raise BpfError(f"{file} declares {len(maps)} controls: write one CONTROL(...)")
            if not library.bpf_object__next_program(opened, None):
                raise BpfError(f"{file} has no functions: {NEEDED}")
            self.name = str(library.bpf_map__name(maps[0]).decode())
            library.bpf_map__set_map_flags(maps[0], AS_LINK)
            failed = library.bpf_object__load(opened)
            if failed:
                raise refusal_error(*_complaint(file, warnings, -failed))
            self._link = _registered(library, maps[0], file)
        finally:
            library.bpf_object__close(opened)

    def close(self) -> None:
        """End the registration; connections that use the control keep it."""
        if self._link >= 0:
            os.close(self._link)
        self._link = -1


def _registered(library: ctypes.CDLL, control: ctypes.c_void_p, file: str) -> int:
    """Register a loaded control; return the descriptor of its link."""
    # This call only fills the map, since the map has the flag AS_LINK.
    if not library.bpf_map__attach_struct_ops(control):
        what = f"the kernel refuses the members of {file}"
        raise refusal_error(what, ctypes.get_errno(), NEEDED)
    numbers = library.bpf_map__fd(control), 0, STRUCT_OPS_ATTACH, 0
    try:
        return call_bpf(LINK_CREATE, struct.pack("=IIII", *numbers))
    except OSError as error:
        number = error.errno or errno.EINVAL
        if number == errno.EEXIST:
            raise NameTakenError(f"the kernel has a control of the name in {file}") from None
        raise refusal_error(f"the kernel does not register {file}", number) from None


def _complaint(file: str, warnings: Sequence[str], number: int) -> tuple[str, int, str]:
    """Return sentence, errno and cause for a control that the kernel refused to load.

    The verifier's log names a source line before the instructions of that line, and ends with the
    cause and a line of statistics.
    """
    lines = [line.removeprefix("libbpf: ").strip() for line in warnings]
    ends = [at for at, line in enumerate(lines) if line.startswith(STATISTICS)]
    if not ends:
        return f"the kernel refuses {file}", number, next(iter(lines), "")
    log = [line for line in lines[: ends[0]] if not line.startswith(STATES)]
    unnamed = UNNAMED.match(log[-1]) if log and number == NOT_SUPPORTED else None
    if unnamed:
        hint = f"CONTROL does not name the function {unnamed['name']}: name or remove it"
        return f"{file} has a function too many", errno.EINVAL, hint
    sources = [found for line in log if (found := SOURCE_LINE.match(line))]
    where = f", line {sources[-1]['line']}" if sources else ""
    return f"the kernel's verifier refuses {file}{where}", number, log[-1] if log else ""
