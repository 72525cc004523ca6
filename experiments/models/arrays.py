"""Types of the arrays that models compute with, and of records that compiled code changes in place.

A kind of record is a class whose annotations are its fields, each with its width in memory::

    class Link:
        byte_s: Float64
        first: Int32

`zero_records` makes an array of them. In compiled code ``links[i].first`` is a field of a record;
elsewhere ``links["first"]`` is the array of that field.
"""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Protocol,
    TypeAlias,
    TypeVar,
    get_type_hints,
    overload,
)

import numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[numpy.signedinteger[Any]]"
Floats: TypeAlias = "NDArray[numpy.float64]"
Bools: TypeAlias = "NDArray[numpy.bool_]"

Float64: TypeAlias = Annotated[float, "f8"]
Int8: TypeAlias = Annotated[int, "i1"]
Int16: TypeAlias = Annotated[int, "i2"]
Int32: TypeAlias = Annotated[int, "i4"]
Int64: TypeAlias = Annotated[int, "i8"]
Flag: TypeAlias = Annotated[bool, "b1"]
CACHE_LINE = 64  # bytes
Record_co = TypeVar("Record_co", covariant=True)


class Records(Protocol[Record_co]):
    """Array of records of one kind."""

    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, index: int, /) -> Record_co: ...
    @overload
    def __getitem__(self, field: str, /) -> NDArray[Any]: ...
    def __setitem__(self, part: str | slice, values: object, /) -> None: ...


def zero_records(kind: type[Record_co], count: int) -> Records[Record_co]:
    """Return an array of records whose fields are all 0.

    The first record begins a cache line. Records larger than a cache line fill whole lines.

    >>> class Link:
    ...     first: Int32
    ...     busy: Flag
    >>> len(zero_records(Link, 3)), zero_records(Link, 3)["busy"].tolist()
    (3, [False, False, False])
    """
    fields = get_type_hints(kind, include_extras=True)
    widths = [(name, *one.__metadata__) for name, one in fields.items()]
    layout = numpy.dtype(widths, align=True)
    if layout.itemsize > CACHE_LINE:
        parts: Any = layout.fields
        layout = numpy.dtype(
            {
                "names": list(parts),
                "formats": [part[0] for part in parts.values()],
                "offsets": [part[1] for part in parts.values()],
                "itemsize": -(-layout.itemsize // CACHE_LINE) * CACHE_LINE,
            },
            align=True,
        )
    found: Records[Record_co] = _zero_bytes(count * layout.itemsize).view(layout)
    return found


def zeros_alone(shape: tuple[int, ...], kind: type[numpy.generic]) -> NDArray[Any]:
    """Return an array of zeros that shares no cache line with other data.

    Threads that write to different cache lines do not slow each other down.

    >>> zeros_alone((2,), numpy.int64).ctypes.data % CACHE_LINE
    0
    """
    count = numpy.prod(shape, dtype=int)
    return _zero_bytes(int(count) * numpy.dtype(kind).itemsize).view(kind).reshape(shape)


def _zero_bytes(size: int) -> NDArray[numpy.uint8]:
    memory = numpy.zeros(size + 2 * CACHE_LINE, numpy.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size]
