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

from pillarbox.hosts.linux.bpf import (
    BpfError,
    BtfType,
    btf_types,
    call_bpf,
    libbpf,
    libbpf_items,
    refusal_error,
    warnings_of_libbpf,
)

LINK_CREATE = 28  # command number of bpf(2)
STRUCT_OPS_MAP, STRUCT_OPS_ATTACH = 26, 44  # map type and attach type, from linux/bpf.h
AS_LINK = 1 << 13  # BPF_F_LINK: the map's content is registered by a link, from Linux 6.4 on
STRUCTURE = "tcp_congestion_ops"  # structure of the kernel that a control fills
# Source line in the verifier's log, not of a header.
SOURCE_LINE = re.compile(r"^; .* @ (?P<file>\S+(?<!\.h)):(?P<line>\d+)$")
# Begin of the log of a function that no member of the control names: the kernel has no use for it.
UNNAMED = re.compile(r"^prog '(?P<name>\w+)': -- BEGIN PROG LOAD LOG --$")
NOT_SUPPORTED = 524  # ENOTSUPP, which only the kernel defines
NEEDED = "a control needs ssthresh, cong_avoid and undo_cwnd"
# First words of lines of the verifier's log about its own state, which follow the cause.
STATES = ("cur state:", "old state:")
STATISTICS = "processed "  # first word of the verifier's last line
# Kinds of types and linkages of functions, from linux/btf.h.
KIND_STRUCT, KIND_FUNCTION, KIND_SECTION = 4, 12, 15
GLOBAL, EXTERN = 1, 2
SECTION_ENTRY = struct.Struct("=III")  # type number of a variable, its offset and its size
STRUCT_OPS = 27  # program type
CALL, OF_HELPER, OF_FUNCTION = 0x85, 0, 1  # an instruction's code, and its kinds by source register
MAY_GOTO = 0xE5  # code of the branch of loops that the kernel ends after 8 million rounds
INSTRUCTION = struct.Struct("=BBhi")  # code, registers, offset, constant
# Helper functions of the kernel that a restricted control may call: they return immediately, and
# read or change nothing but the connection.
HELPERS = {
    5: "bpf_ktime_get_ns",
    7: "bpf_get_prandom_u32",
    118: "bpf_jiffies64",
    160: "bpf_ktime_get_coarse_ns",
}
_Pointer = ctypes.c_void_p


class NameTakenError(BpfError):
    """Error: the kernel has a congestion control of that name already."""


class CongestionControl:
    """A congestion control of an eBPF object file, registered until `close`.

    `name` is the variable in the file that declares the control.

    A `restricted` control is one of an untrusted author: its only memory is that of a connection
    (STATE), and it calls no function of the kernel but HELPERS. The verifier permits more: loops
    that end after hours, reads of the kernel's memory, maps that stay in the file system.
    """

    def __init__(self, path: Path, file: str, *, restricted: bool = False) -> None:
        library = libbpf()
        warnings = warnings_of_libbpf()
        address = library.bpf_object__open_file(str(path).encode(), None)
        if not address:
            # libbpf cannot read the sections that clang makes of small tables of constants.
            cause = "".join(warnings[:1]) or "declare tables of constants `const volatile`"
            raise refusal_error(f"{file} cannot be read", ctypes.get_errno(), cause)
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
            types = btf_types(library, _Pointer(library.bpf_object__btf(opened)))
            _check_structure(types, file)
            if restricted:
                _check_declarations(library, opened, types, file)
            self.name = str(library.bpf_map__name(maps[0]).decode())
            library.bpf_map__set_map_flags(maps[0], AS_LINK)
            failed = library.bpf_object__load(opened)
            if failed:
                raise refusal_error(*_complaint(file, warnings, -failed))
            if restricted:
                _check_calls(library, opened, file)
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


def _check_structure(types: Sequence[BtfType], file: str) -> None:
    """Raise BpfError if a file fills another structure of the kernel than a TCP control's.

    Others change more than connections: one of them replaces the machine's process scheduler.
    """
    for section in types:
        if section.kind != KIND_SECTION or not section.name.startswith(".struct_ops"):
            continue
        entries = ctypes.string_at(section.entries_at, section.entries * SECTION_ENTRY.size)
        for number, _, _ in SECTION_ENTRY.iter_unpack(entries):
            filled = types[types[number - 1].size - 1]
            if (filled.kind, filled.name) != (KIND_STRUCT, STRUCTURE):
                raise BpfError(
                    f"{file} fills the structure {filled.name!r}, not {STRUCTURE}: use CONTROL(...)"
                )


def _check_declarations(
    library: ctypes.CDLL, opened: ctypes.c_void_p, types: Sequence[BtfType], file: str
) -> None:
    """Raise BpfError for memory, programs and functions that a restricted control may not have."""
    for one in libbpf_items(library.bpf_object__next_map, opened):
        name = library.bpf_map__name(one).decode(errors="replace")
        constants = library.bpf_map__is_internal(one) and ".rodata" in name
        if library.bpf_map__type(one) != STRUCT_OPS_MAP and not constants:
            raise BpfError(f"{file} has the map or variables {name!r}: keep data in STATE only")
    names = set()
    for program in libbpf_items(library.bpf_object__next_program, opened):
        names.add(library.bpf_program__name(program).decode(errors="replace"))
        if library.bpf_program__type(program) != STRUCT_OPS:
            raise BpfError(f"{file} has a program of another kind than a control's: remove it")
    for function in types:
        if function.kind != KIND_FUNCTION:
            continue
        if function.entries == EXTERN:
            raise BpfError(f"{file} calls the kernel's function {function.name}: write your own")
        # The verifier checks a global function alone, and not how often it runs.
        if function.entries == GLOBAL and function.name not in names:
            raise BpfError(f"{file} has the global function {function.name}: declare it static")


def _check_calls(library: ctypes.CDLL, opened: ctypes.c_void_p, file: str) -> None:
    """Raise BpfError if a loaded control calls functions of the kernel that are not permitted.

    Branches that let the kernel bound a loop are not permitted either: nested ones run for hours.
    """
    library.bpf_program__insn_cnt.restype = ctypes.c_size_t
    for program in libbpf_items(library.bpf_object__next_program, opened):
        size = library.bpf_program__insn_cnt(program) * INSTRUCTION.size
        text = ctypes.string_at(library.bpf_program__insns(program), size)
        for code, registers, _, number in INSTRUCTION.iter_unpack(text):
            if code == MAY_GOTO:
                raise BpfError(f"{file} has a loop without a bound (may_goto): write `for`")
            kind = registers >> 4
            if code != CALL or kind == OF_FUNCTION or (kind == OF_HELPER and number in HELPERS):
                continue
            raise BpfError(
                f"{file} calls the kernel's function {number}: permitted are "
                f"{', '.join(HELPERS.values())}"
            )


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
