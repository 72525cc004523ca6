"""eBPF through bpf(2) and libbpf: load and attach programs, share maps with Python.

libbpf, which Debian's iproute2 depends on, parses and loads an object file. Maps are then read and
written with the system call_bpf, in one or two microseconds. Interface indices refer to the network
namespace of the caller.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pillarbox.hosts.linux.instructions import EXIT, R0, set_register
from pillarbox.topos.base.errors import KernelError

# Command numbers of the system call bpf(2), from linux/bpf.h.
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE, PROG_LOAD = 0, 1, 2, 3, 5
PROGRAM_RUN, MAP_LOOKUP_BATCH = 10, 24
NO_EXIST = 1  # BPF_NOEXIST, flag of bpf(2): insert a map entry, never replace one
NAME = b"pillarbox"  # name of the eBPF programs assembled in hosts/linux
TRIES, AGAIN_S = 1000, 0.001  # retries of bpf(2) after ENOMEM, and delay between them in seconds
SOCKET_FILTER, SCHED_CLS = 1, 3  # program types: socket filter, traffic control
NO_LOG = (0, 0, 0, 0, 0)  # attributes of BPF_PROG_LOAD: no verifier log, kernel version or flags
# Size in bytes of bpf(2)'s argument (union bpf_attr), larger than any kernel's; the rest is zero.
ATTRIBUTES = 128
WARNING = 0  # log level LIBBPF_WARN of libbpf.h
# Number of CPUs, read only once: many servers of a lab would contend for a kernel lock of /sys.
CPUS = os.cpu_count() or 1
KIND_ENUM = 6  # BTF_KIND_ENUM of linux/btf.h: the BTF type is an enumeration

SYSTEM_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_SYSTEM_CALL = SYSTEM_CALLS.get(platform.machine())

_NUMBER = struct.Struct("=I")

# Separate handle of libc with declared argument types, which makes calls of bpf(2) faster.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint]
_libc.syscall.restype = ctypes.c_long


class BpfError(KernelError):
    """Error: the kernel or the machine refused an eBPF operation."""


def call_bpf(command: int, attributes: bytes | ctypes.Array[Any]) -> int:
    """Execute the system call bpf(2) and return its result; raise OSError on failure."""
    if isinstance(attributes, bytes):
        attributes = ctypes.create_string_buffer(attributes, ATTRIBUTES)
    if _SYSTEM_CALL is None:
        raise BpfError(f"BPF programs cannot be loaded on a {platform.machine()} processor")
    result = int(_libc.syscall(_SYSTEM_CALL, command, ctypes.addressof(attributes), ATTRIBUTES))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _call_quietly(command: int, attributes: ctypes.Array[Any]) -> bool:
    """Execute the system call bpf(2); return False on failure, with the cause in errno.

    For calls that usually fail: raising and catching an exception costs as much as the call.
    """
    address = ctypes.addressof(attributes)
    return int(_libc.syscall(_SYSTEM_CALL, command, address, ATTRIBUTES)) >= 0


def load_program(instructions: bytes, kind: int = SCHED_CLS) -> int:
    """Load an eBPF program, given as instructions, into the kernel; return its file descriptor."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    licence = ctypes.create_string_buffer(b"Dual MIT/GPL")
    addresses = ctypes.addressof(code), ctypes.addressof(licence)
    attributes = kind, len(instructions) // 8, *addresses, *NO_LOG, NAME
    return call_bpf(PROG_LOAD, struct.pack("=IIQQIIQII16s", *attributes))


@cache
def may_load_programs() -> bool:
    """Return False if the kernel refuses eBPF programs of this process for lack of rights."""
    try:
        os.close(load_program(set_register(R0, 0) + EXIT))
    except OSError as error:
        return error.errno not in (errno.EPERM, errno.EACCES)
    return True


class Map:
    """An eBPF map, shared by programs and Python; keys and values are bytes of fixed size."""

    def __init__(self, fd: int, key_size: int, value_size: int, entries: int) -> None:
        self.fd, self.key_size, self.value_size, self.entries = fd, key_size, value_size, entries
        self._key = ctypes.create_string_buffer(key_size)
        self._value = ctypes.create_string_buffer(value_size)
        addresses = ctypes.addressof(self._key), ctypes.addressof(self._value)
        one = struct.pack("=IIQQQ", fd, 0, *addresses, 0)
        self._entry_attributes = ctypes.create_string_buffer(one, ATTRIBUTES)
        new = struct.pack("=IIQQQ", fd, 0, *addresses, NO_EXIST)
        self._insert_attributes = ctypes.create_string_buffer(new, ATTRIBUTES)
        only_key = struct.pack("=IIQ", fd, 0, addresses[0])
        self._key_attributes = ctypes.create_string_buffer(only_key, ATTRIBUTES)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an eBPF map: key size and value size in bytes, maximum number of entries."""
        return self.key_size, self.value_size, self.entries

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"the table has {self.key_size} and {self.value_size} bytes an entry")
        self._key.raw = key
        self._value.raw = value
        call_bpf(MAP_UPDATE, self._entry_attributes)

    def insert(self, key: bytes, value: bytes) -> bool:
        """Insert an entry if its key is not in the eBPF map; return True if it was inserted."""
        self._key.raw, self._value.raw = key, value
        if _call_quietly(MAP_UPDATE, self._insert_attributes):
            return True
        number = ctypes.get_errno()
        if number != errno.EEXIST:
            raise OSError(number, os.strerror(number))
        return False

    def __getitem__(self, key: bytes) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key of an eBPF map, None if the key is not in the map."""
        self._key.raw = key
        if _call_quietly(MAP_LOOKUP, self._entry_attributes):
            return self._value.raw
        number = ctypes.get_errno()
        if number != errno.ENOENT:
            raise OSError(number, os.strerror(number))
        return None

    def discard(self, key: bytes) -> None:
        """Delete the entry of a key from an eBPF hash map, if it exists."""
        self._key.raw = key
        if not _call_quietly(MAP_DELETE, self._key_attributes):
            number = ctypes.get_errno()
            if number != errno.ENOENT:
                raise OSError(number, os.strerror(number))

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all (key, value) entries of an eBPF hash map, read in batches."""
        capacity = self.entries + CPUS
        keys = ctypes.create_string_buffer(capacity * self.key_size)
        values = ctypes.create_string_buffer(capacity * self.value_size)
        token = ctypes.create_string_buffer(max(self.key_size, 8))
        position, first = ctypes.addressof(token), 0
        ended = False
        while not ended:
            buffers = ctypes.addressof(keys), ctypes.addressof(values)
            batch = struct.pack("=QQQQIIQQ", first, position, *buffers, capacity, self.fd, 0, 0)
            attributes = ctypes.create_string_buffer(batch, ATTRIBUTES)
            try:
                call_bpf(MAP_LOOKUP_BATCH, attributes)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                ended = True  # ENOENT: this batch of map entries was the last
            first = position
            (count,) = struct.unpack_from("=I", attributes, 32)
            batch_keys = _equal_pieces(keys, self.key_size, count)
            yield from zip(batch_keys, _equal_pieces(values, self.value_size, count), strict=True)


def _equal_pieces(buffer: ctypes.Array[ctypes.c_char], size: int, count: int) -> list[bytes]:
    """Split the start of a buffer into `count` byte strings of `size` bytes each."""
    data = ctypes.string_at(buffer, size * count)
    return [data[at : at + size] for at in range(0, len(data), size)]


class BpfObject:
    """An eBPF object file loaded into the kernel, with its programs and maps by name.

    Parameters
    ----------
    path : Path
        Path of the compiled object file.
    entries : mapping of name to int, optional
        Maximum number of entries of maps, in place of the file's; unknown names are ignored.
    """

    def __init__(self, path: Path, entries: Mapping[str, int] | None = None) -> None:
        self.programs: dict[str, int] = {}  # file descriptors of the eBPF programs, by name
        self.maps: dict[str, Map] = {}
        # Attributes (type, sizes, entries) of inner eBPF maps, by the name of their map of maps.
        self._inner_maps: dict[str, tuple[int, ...]] = {}
        library = libbpf()
        _warnings.clear()
        address = library.bpf_object__open_file(str(path).encode(), None)
        if not address:
            raise _object_error(f"{path.name} cannot be read", ctypes.get_errno())
        opened = _Pointer(address)
        try:
            for name, number in (entries or {}).items():
                table = library.bpf_object__find_map_by_name(opened, name.encode())
                if table:
                    library.bpf_map__set_max_entries(_Pointer(table), number)
            # Inner maps are recorded before loading, which makes libbpf discard them.
            self._record_inner_maps(library, opened)
            failed = library.bpf_object__load(opened)
            if failed:
                raise _object_error(f"the kernel refused {path.name}", -failed)
            self._read_enums_and_descriptors(library, opened)
        finally:
            library.bpf_object__close(opened)

    def _record_inner_maps(self, library: ctypes.CDLL, opened: ctypes.c_void_p) -> None:
        """Record the attributes of the inner eBPF maps of all maps of maps in an object file."""
        for at in libbpf_items(library.bpf_object__next_map, opened):
            inner = library.bpf_map__inner_map(at)
            if inner:
                getters = (getattr(library, f"bpf_map__{name}") for name in _MAP_ATTRIBUTES)
                name = library.bpf_map__name(at).decode()
                self._inner_maps[name] = tuple(getter(_Pointer(inner)) for getter in getters)

    def _read_enums_and_descriptors(self, library: ctypes.CDLL, opened: ctypes.c_void_p) -> None:
        """Store enums, programs and maps of a loaded eBPF object; libbpf then frees its copy."""
        self.enums = _EnumMembers(_enums_in(library, _Pointer(library.bpf_object__btf(opened))))
        for at in libbpf_items(library.bpf_object__next_program, opened):
            name = library.bpf_program__name(at).decode()
            self.programs[name] = _duplicated(library.bpf_program__fd(at))
        for at in libbpf_items(library.bpf_object__next_map, opened):
            sizes = library.bpf_map__key_size(at), library.bpf_map__value_size(at)
            fd = _duplicated(library.bpf_map__fd(at))
            name = library.bpf_map__name(at).decode()
            self.maps[name] = Map(fd, *sizes, library.bpf_map__max_entries(at))

    def add_inner_map(self, tables: str, number: int, entries: int | None = None) -> Map:
        """Create an inner eBPF map under a number in the map of maps `tables`; return it."""
        *attributes, default_entries, flags = self._inner_maps[tables]
        size = entries or default_entries
        made = call_bpf(MAP_CREATE, struct.pack("=5I", *attributes, size, flags))
        self.maps[tables][_NUMBER.pack(number)] = _NUMBER.pack(made)
        return Map(made, attributes[1], attributes[2], size)

    def run_program(self, program: str) -> None:
        """Run an eBPF program once, independent of any interface; raise BpfError if it fails.

        The program returns an errno. After ENOMEM it runs again: allocations in programs must not
        block, so that they occasionally fail even on machines with enough memory.
        """
        run = struct.pack("=II", self.programs[program], 0)
        failed = errno.ENOMEM
        for _ in range(TRIES):
            attributes = ctypes.create_string_buffer(run, ATTRIBUTES)
            call_bpf(PROGRAM_RUN, attributes)
            failed = struct.unpack_from("=i", attributes, 4)[0]
            if failed != errno.ENOMEM:
                break
            time.sleep(AGAIN_S)  # ENOMEM: wait until the kernel has refilled its memory pools
        if failed:
            raise BpfError(f"the program {program} failed: {os.strerror(failed)}")

    def handover(self) -> tuple[dict[str, Any], list[int]]:
        """Return a description and file descriptors by which another process uses the eBPF maps."""
        described = {
            "enums": self.enums.names,
            "inside": self._inner_maps,
            "programs": list(self.programs),
            "maps": {name: table.shape for name, table in self.maps.items()},
        }
        return described, [*self.programs.values(), *(table.fd for table in self.maps.values())]

    @classmethod
    def from_handover(cls, described: Mapping[str, Any], files: Sequence[int]) -> BpfObject:
        """Return the eBPF object that another process described by `handover`."""
        made = cls.__new__(cls)
        made.enums = _EnumMembers(described["enums"])
        made._inner_maps = {name: tuple(numbers) for name, numbers in described["inside"].items()}
        count = len(described["programs"])
        made.programs = dict(zip(described["programs"], files[:count], strict=True))
        maps = zip(described["maps"].items(), files[count:], strict=True)
        made.maps = {name: Map(fd, *shape) for (name, shape), fd in maps}
        return made

    def close(self) -> None:
        """Close the file descriptors of all programs and maps of the eBPF object."""
        maps = [table.fd for table in self.maps.values()]
        for fd in [*self.programs.values(), *maps]:
            os.close(fd)
        self.programs, self.maps = {}, {}


class _EnumMembers:
    """Member names of the C enumerations in an eBPF object file, by enumeration name."""

    def __init__(self, names: Mapping[str, list[str]]) -> None:
        self.names = dict(names)

    def __getitem__(self, name: str) -> list[str]:
        return self.names[name]


def _enums_in(library: ctypes.CDLL, btf: ctypes.c_void_p) -> dict[str, list[str]]:
    """Return the member names of each enumeration in an eBPF object file's type data (BTF)."""
    found: dict[str, list[str]] = {}
    for described in btf_types(library, btf):
        if described.kind == KIND_ENUM:
            entries = (_BtfEnumerator * described.entries).from_address(described.entries_at)
            found[described.name] = [_btf_text(library, btf, entry.name) for entry in entries]
    return found


class BtfType(NamedTuple):
    """A type in the type data (BTF) of an eBPF object file, by the fields of linux/btf.h."""

    name: str
    kind: int
    entries: int  # number of entries; of a function, its linkage
    size: int  # size in bytes, or number of another type
    entries_at: int  # address of the entries


def btf_types(library: ctypes.CDLL, btf: ctypes.c_void_p) -> list[BtfType]:
    """Return all types of an eBPF object file; the type of number N is at index N - 1."""
    library.btf__type_by_id.restype = ctypes.POINTER(_BtfType)
    found = []
    for number in range(1, library.btf__type_cnt(btf)):
        one = library.btf__type_by_id(btf, number)[0]
        name = _btf_text(library, btf, one.name)
        entries_at = ctypes.addressof(one) + ctypes.sizeof(_BtfType)
        found.append(BtfType(name, one.info >> 24 & 0x1F, one.info & 0xFFFF, one.size, entries_at))
    return found


def _btf_text(library: ctypes.CDLL, btf: ctypes.c_void_p, offset: int) -> str:
    return str(library.btf__name_by_offset(btf, offset).decode(errors="replace"))


class _BtfType(ctypes.Structure):
    """The C structure btf_type of linux/btf.h: a type in an eBPF object file."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
    )


class _BtfEnumerator(ctypes.Structure):
    """The C structure btf_enum of linux/btf.h: a member of an enumeration."""

    _fields_ = (("name", ctypes.c_uint32), ("value", ctypes.c_int32))


# -- libbpf ------------------------------------------------------------------------------------

_Pointer = ctypes.c_void_p
_MAP_ATTRIBUTES = ("type", "key_size", "value_size", "max_entries", "map_flags")
_POINTERS = (
    "bpf_object__open_file",
    "bpf_map__inner_map",
    "bpf_object__find_map_by_name",
    "bpf_object__next_program",
    "bpf_object__next_map",
    "bpf_object__btf",
    "bpf_map__attach_struct_ops",
    "bpf_program__insns",
)
_TEXTS = ("bpf_program__name", "bpf_map__name", "btf__name_by_offset")

_warnings: list[str] = []


@cache
def libbpf() -> ctypes.CDLL:
    """Return the libbpf library with its return types declared, or raise BpfError."""
    try:
        library = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise BpfError(
            "libbpf.so.1 is missing: install libbpf1, which is in Debian 12 and Ubuntu 24.04"
        ) from None
    for name in _POINTERS:
        getattr(library, name).restype = _Pointer
    for name in _TEXTS:
        getattr(library, name).restype = ctypes.c_char_p
    library.libbpf_set_print(_STORE_WARNING)
    return library


def warnings_of_libbpf() -> list[str]:
    """Return the list that receives libbpf's warnings, emptied."""
    _warnings.clear()
    return _warnings


def _store_warning(level: int, pattern: bytes, arguments: int) -> int:
    """Store a warning of libbpf instead of printing it (callback of libbpf's log)."""
    if level == WARNING:
        text = ctypes.create_string_buffer(1 << 16)
        _libc.vsnprintf(text, ctypes.c_size_t(len(text)), pattern, _Pointer(arguments))
        _warnings.extend(text.value.decode(errors="replace").splitlines())
    return 0


# Module-level reference to libbpf's log callback, which is called until the process ends.
_STORE_WARNING = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(
    _store_warning
)


def _object_error(sentence: str, number: int) -> BpfError:
    """Return the error for an eBPF object, with the cause from libbpf or the kernel's verifier."""
    warnings = [line.removeprefix("libbpf: ").strip() for line in _warnings]
    # The verifier's log ends with the cause, followed by one line of statistics.
    log = [i for i, line in enumerate(warnings) if line.startswith("processed ")]
    cause = warnings[log[0] - 1] if log else next(iter(warnings), "")
    return refusal_error(sentence, number, cause)


def refusal_error(sentence: str, number: int, cause: str = "") -> BpfError:
    """Return the error for an eBPF operation that the kernel refused with this errno."""
    why = ": ".join(filter(None, [os.strerror(number), cause]))
    hint = "; run it as root" if number in (errno.EPERM, errno.EACCES) and os.geteuid() else ""
    return BpfError(f"{sentence}: {why}{hint}")


def libbpf_items(next_of: Any, opened: ctypes.c_void_p) -> Iterator[ctypes.c_void_p]:
    """Yield the programs or maps of an eBPF object file by a libbpf iterator function."""
    item = next_of(opened, None)
    while item:
        yield _Pointer(item)
        item = next_of(opened, _Pointer(item))


def _duplicated(fd: int) -> int:
    """Return a duplicate of a file descriptor, which stays open when libbpf closes the original."""
    return fcntl(fd, F_DUPFD_CLOEXEC, 3)
