"""eBPF by bpf(2) and libbpf: programs are loaded, attached, and share tables with Python.

libbpf reads an object file and loads it; it comes with Debian's iproute2. Tables are then read and
written by the system call itself, in a microsecond or two. Interfaces are those of the network
namespace that the caller is in.
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
from typing import Any

from topos.base.errors import PillarboxError

# Of linux/bpf.h.
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, MAP_DELETE, PROG_LOAD = 0, 1, 2, 3, 5
PROGRAM_RUN, MAP_LOOKUP_BATCH = 10, 24
NO_EXIST = 1  # a flag of MAP_UPDATE: BPF_NOEXIST
NAME = b"pillarbox"  # of programs that are put together here
TRIES, AGAIN_S = 1000, 0.001  # of a program that lacked memory
SOCKET_FILTER, SCHED_CLS = 1, 3  # programs of sockets, and of traffic control
NO_LOG = (0, 0, 0, 0, 0)  # nor a version of the kernel, nor flags
ATTRIBUTES = 128  # bytes, more than any kernel has so far: what is not used is zero
WARNING = 0  # of libbpf.h
# Asked once: the answer is read from /sys, where a lab's many servers would wait for one another.
CPUS = os.cpu_count() or 1
KIND_ENUM = 6  # of linux/btf.h

SYSTEM_CALLS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
_SYSTEM_CALL = SYSTEM_CALLS.get(platform.machine())

_NUMBER = struct.Struct("=I")

# One of its own: the types of its arguments are given once, since this call has to be fast.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint]
_libc.syscall.restype = ctypes.c_long


class BpfError(PillarboxError):
    """What eBPF cannot do here, and why."""


def call(command: int, attributes: bytes | ctypes.Array[Any]) -> int:
    """Make the system call bpf(2), or raise OSError."""
    if isinstance(attributes, bytes):
        attributes = ctypes.create_string_buffer(attributes, ATTRIBUTES)
    if _SYSTEM_CALL is None:
        raise BpfError(f"BPF programs cannot be loaded on a {platform.machine()} processor")
    result = int(_libc.syscall(_SYSTEM_CALL, command, ctypes.addressof(attributes), ATTRIBUTES))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _try(command: int, attributes: ctypes.Array[Any]) -> bool:
    """Make the system call; return False where the kernel refuses it, and errno says why.

    For calls that fail as a rule: to raise and catch an exception costs as much as the call.
    """
    address = ctypes.addressof(attributes)
    return int(_libc.syscall(_SYSTEM_CALL, command, address, ATTRIBUTES)) >= 0


def load(instructions: bytes, kind: int = SCHED_CLS) -> int:
    """Load a program that was put together here; return it as an open file."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    licence = ctypes.create_string_buffer(b"Dual MIT/GPL")
    addresses = ctypes.addressof(code), ctypes.addressof(licence)
    asked = kind, len(instructions) // 8, *addresses, *NO_LOG, NAME
    return call(PROG_LOAD, struct.pack("=IIQQIIQII16s", *asked))


class Map:
    """A table that programs and Python share; keys and values are bytes of its sizes."""

    def __init__(self, fd: int, key_size: int, value_size: int, entries: int) -> None:
        self.fd, self.key_size, self.value_size, self.entries = fd, key_size, value_size, entries
        self._key = ctypes.create_string_buffer(key_size)
        self._value = ctypes.create_string_buffer(value_size)
        addresses = ctypes.addressof(self._key), ctypes.addressof(self._value)
        one = struct.pack("=IIQQQ", fd, 0, *addresses, 0)
        self._one = ctypes.create_string_buffer(one, ATTRIBUTES)
        new = struct.pack("=IIQQQ", fd, 0, *addresses, NO_EXIST)
        self._new = ctypes.create_string_buffer(new, ATTRIBUTES)
        only_key = struct.pack("=IIQ", fd, 0, addresses[0])
        self._only_key = ctypes.create_string_buffer(only_key, ATTRIBUTES)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The bytes of a key and of a value, and how many entries there can be."""
        return self.key_size, self.value_size, self.entries

    def __setitem__(self, key: bytes, value: bytes) -> None:
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"the table has {self.key_size} and {self.value_size} bytes an entry")
        self._key.raw = key
        self._value.raw = value
        call(MAP_UPDATE, self._one)

    def insert(self, key: bytes, value: bytes) -> bool:
        """Set an entry unless there is one with that key; return whether there was none."""
        self._key.raw, self._value.raw = key, value
        if _try(MAP_UPDATE, self._new):
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
        """Return the value of a key, None if there is none."""
        self._key.raw = key
        if _try(MAP_LOOKUP, self._one):
            return self._value.raw
        number = ctypes.get_errno()
        if number != errno.ENOENT:
            raise OSError(number, os.strerror(number))
        return None

    def discard(self, key: bytes) -> None:
        """Take an entry out of a hash table, if it is there."""
        self._key.raw = key
        if not _try(MAP_DELETE, self._only_key):
            number = ctypes.get_errno()
            if number != errno.ENOENT:
                raise OSError(number, os.strerror(number))

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all entries of a hash table, read in as few calls as can be."""
        room = self.entries + CPUS
        keys = ctypes.create_string_buffer(room * self.key_size)
        values = ctypes.create_string_buffer(room * self.value_size)
        token = ctypes.create_string_buffer(max(self.key_size, 8))
        there, first = ctypes.addressof(token), 0
        ended = False
        while not ended:
            buffers = ctypes.addressof(keys), ctypes.addressof(values)
            batch = struct.pack("=QQQQIIQQ", first, there, *buffers, room, self.fd, 0, 0)
            attributes = ctypes.create_string_buffer(batch, ATTRIBUTES)
            try:
                call(MAP_LOOKUP_BATCH, attributes)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise
                ended = True  # nothing is left behind these
            first = there
            (count,) = struct.unpack_from("=I", attributes, 32)
            found = _pieces(keys, self.key_size, count), _pieces(values, self.value_size, count)
            yield from zip(*found, strict=True)


def _pieces(buffer: ctypes.Array[ctypes.c_char], size: int, count: int) -> list[bytes]:
    data = ctypes.string_at(buffer, size * count)
    return [data[at : at + size] for at in range(0, len(data), size)]


class Object:
    """A loaded object file: its programs by name, its maps by name.

    Parameters
    ----------
    path : Path
        What `build` made.
    entries : mapping of name to int, optional
        How many entries maps have, where that is not what the file says; it need not have them all.
    """

    def __init__(self, path: Path, entries: Mapping[str, int] | None = None) -> None:
        self.programs: dict[str, int] = {}  # their descriptors
        self.maps: dict[str, Map] = {}
        self._inside: dict[str, tuple[int, ...]] = {}  # of tables of tables: what those are made of
        library = _libbpf()
        _complaints.clear()
        found = library.bpf_object__open_file(str(path).encode(), None)
        if not found:
            raise _failure(f"{path.name} cannot be read", ctypes.get_errno())
        opened = _Pointer(found)
        try:
            for name, number in (entries or {}).items():
                table = library.bpf_object__find_map_by_name(opened, name.encode())
                if table:
                    library.bpf_map__set_max_entries(_Pointer(table), number)
            self._look_inside(library, opened)  # libbpf forgets that when it loads
            failed = library.bpf_object__load(opened)
            if failed:
                raise _failure(f"the kernel refused {path.name}", -failed)
            self._take(library, opened)
        finally:
            library.bpf_object__close(opened)

    def _look_inside(self, library: ctypes.CDLL, opened: ctypes.c_void_p) -> None:
        for at in _each(library.bpf_object__next_map, opened):
            found = library.bpf_map__inner_map(at)
            if found:
                asked = (getattr(library, f"bpf_map__{what}") for what in _OF_MAPS)
                name = library.bpf_map__name(at).decode()
                self._inside[name] = tuple(one(_Pointer(found)) for one in asked)

    def _take(self, library: ctypes.CDLL, opened: ctypes.c_void_p) -> None:
        """Keep what is needed of a loaded object; libbpf's own copy of the file can go."""
        self.enums = _Enums(_enums_in(library, _Pointer(library.bpf_object__btf(opened))))
        for at in _each(library.bpf_object__next_program, opened):
            name = library.bpf_program__name(at).decode()
            self.programs[name] = _kept(library.bpf_program__fd(at))
        for at in _each(library.bpf_object__next_map, opened):
            sizes = library.bpf_map__key_size(at), library.bpf_map__value_size(at)
            fd = _kept(library.bpf_map__fd(at))
            name = library.bpf_map__name(at).decode()
            self.maps[name] = Map(fd, *sizes, library.bpf_map__max_entries(at))

    def add(self, tables: str, number: int, entries: int | None = None) -> Map:
        """Make a table such as a table of tables has, and put it there under a number."""
        *of_one, usual, flags = self._inside[tables]
        size = entries or usual
        made = call(MAP_CREATE, struct.pack("=5I", *of_one, size, flags))
        self.maps[tables][_NUMBER.pack(number)] = _NUMBER.pack(made)
        return Map(made, of_one[1], of_one[2], size)

    def run(self, program: str) -> None:
        """Let a program run once that belongs to no interface, or raise BpfError.

        The program returns an errno. Where it lacked memory it runs again: what may not wait for
        memory, as a program may not, fails now and then on a machine that has enough of it.
        """
        run = struct.pack("=II", self.programs[program], 0)
        failed = errno.ENOMEM
        for _ in range(TRIES):
            attributes = ctypes.create_string_buffer(run, ATTRIBUTES)
            call(PROGRAM_RUN, attributes)
            failed = struct.unpack_from("=i", attributes, 4)[0]
            if failed != errno.ENOMEM:
                break
            time.sleep(AGAIN_S)  # not at once: the kernel has to be elsewhere meanwhile
        if failed:
            raise BpfError(f"the program {program} failed: {os.strerror(failed)}")

    def handover(self) -> tuple[dict[str, Any], list[int]]:
        """Return a description and the open files by which another process can use all this."""
        described = {
            "enums": self.enums.names,
            "inside": self._inside,
            "programs": list(self.programs),
            "maps": {name: one.shape for name, one in self.maps.items()},
        }
        return described, [*self.programs.values(), *(one.fd for one in self.maps.values())]

    @classmethod
    def taken_over(cls, described: Mapping[str, Any], files: Sequence[int]) -> Object:
        """Return the object of which another process gave the `handover`."""
        made = cls.__new__(cls)
        made.enums = _Enums(described["enums"])
        made._inside = {name: tuple(numbers) for name, numbers in described["inside"].items()}
        count = len(described["programs"])
        made.programs = dict(zip(described["programs"], files[:count], strict=True))
        maps = zip(described["maps"].items(), files[count:], strict=True)
        made.maps = {name: Map(fd, *shape) for (name, shape), fd in maps}
        return made

    def close(self) -> None:
        """Release everything."""
        maps = [one.fd for one in self.maps.values()]
        for fd in [*self.programs.values(), *maps]:
            os.close(fd)
        self.programs, self.maps = {}, {}


class _Enums:
    """The enumerations of the C source, which the object file describes: names in their order."""

    def __init__(self, names: Mapping[str, list[str]]) -> None:
        self.names = dict(names)

    def __getitem__(self, name: str) -> list[str]:
        return self.names[name]


def _enums_in(library: ctypes.CDLL, btf: ctypes.c_void_p) -> dict[str, list[str]]:
    """Return the names of each enumeration that an object file describes."""
    found: dict[str, list[str]] = {}
    library.btf__type_by_id.restype = ctypes.POINTER(_Type)

    def text(offset: int) -> str:
        return str(library.btf__name_by_offset(btf, offset).decode())

    for number in range(1, library.btf__type_cnt(btf)):
        described = library.btf__type_by_id(btf, number)
        kind, count = described[0].info >> 24 & 0x1F, described[0].info & 0xFFFF
        if kind == KIND_ENUM:
            behind = ctypes.addressof(described[0]) + ctypes.sizeof(_Type)
            entries = (_Enumerator * count).from_address(behind)
            found[text(described[0].name)] = [text(entry.name) for entry in entries]
    return found


class _Type(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
    )


class _Enumerator(ctypes.Structure):
    _fields_ = (("name", ctypes.c_uint32), ("value", ctypes.c_int32))


# -- libbpf ------------------------------------------------------------------------------------

_Pointer = ctypes.c_void_p
_OF_MAPS = ("type", "key_size", "value_size", "max_entries", "map_flags")
_POINTERS = (
    "bpf_object__open_file",
    "bpf_map__inner_map",
    "bpf_object__find_map_by_name",
    "bpf_object__next_program",
    "bpf_object__next_map",
    "bpf_object__btf",
)
_TEXTS = ("bpf_program__name", "bpf_map__name", "btf__name_by_offset")

_complaints: list[str] = []


@cache
def _libbpf() -> ctypes.CDLL:
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
    library.libbpf_set_print(_LISTENER)
    return library


def _listen(level: int, pattern: bytes, arguments: int) -> int:
    """Keep libbpf's warnings, which it would print."""
    if level == WARNING:
        text = ctypes.create_string_buffer(1 << 16)
        _libc.vsnprintf(text, ctypes.c_size_t(len(text)), pattern, _Pointer(arguments))
        _complaints.extend(text.value.decode(errors="replace").splitlines())
    return 0


# Kept, since libbpf calls it as long as the process lives.
_LISTENER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_listen)


def _failure(sentence: str, number: int) -> BpfError:
    """Return the error, with what libbpf or the kernel's verifier said last of the cause."""
    said = [line.removeprefix("libbpf: ").strip() for line in _complaints]
    # The verifier's log ends with the complaint, and a line of statistics behind it.
    log = [i for i, line in enumerate(said) if line.startswith("processed ")]
    cause = said[log[0] - 1] if log else next(iter(said), "")
    return refused(sentence, number, cause)


def refused(sentence: str, number: int, cause: str = "") -> BpfError:
    """Return the error for what the kernel refused, by its number."""
    why = ": ".join(filter(None, [os.strerror(number), cause]))
    hint = "; run it as root" if number in (errno.EPERM, errno.EACCES) and os.geteuid() else ""
    return BpfError(f"{sentence}: {why}{hint}")


def _each(next_of: Any, opened: ctypes.c_void_p) -> Iterator[ctypes.c_void_p]:
    """Yield what libbpf finds one after the other in an object."""
    found = next_of(opened, None)
    while found:
        yield _Pointer(found)
        found = next_of(opened, _Pointer(found))


def _kept(fd: int) -> int:
    """Return a descriptor of the same thing that libbpf does not close."""
    return fcntl(fd, F_DUPFD_CLOEXEC, 3)
