"""Atomic loads and stores of compiled code, by which threads without Python's lock synchronize; and
prefetches.

A store with release order makes all earlier writes of its thread visible to every thread that loads
the stored value with acquire order, as in C11.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pillarbox.experiments.base.interpreter import outside_current_directory
from pillarbox.experiments.models.arrays import Floats, Ints, Records

with outside_current_directory():
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic
    from numba.np.arrayobj import make_array

BYTES = 8  # alignment and width of the arrays' numbers, in bytes


def load_acquire(numbers: Floats, at: int) -> float:
    """Return number `at` of an array, loaded atomically with acquire order."""
    return float(numbers[at])


def store_release(numbers: Floats, at: int, value: float) -> None:
    """Store number `at` of an array atomically with release order."""
    numbers[at] = value


def yield_processor() -> None:
    """Let the kernel run another thread on this processor (sched_yield(2))."""
    os.sched_yield()


def prefetch(_items: Records[Any] | Ints, _at: int) -> None:
    """Load the cache line of an array's item `at`, which is needed soon."""


@intrinsic
def native_prefetch(_typing_context: Any, items: Any, _at: Any) -> Any:
    """Compile `prefetch`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        item = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(call, [item, number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(items, types.intp), code


@intrinsic
def native_load_acquire(_typing_context: Any, numbers: Any, _at: Any) -> Any:
    """Compile `load_acquire`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, arguments[0])
        return builder.load_atomic(builder.gep(array.data, [arguments[1]]), "acquire", BYTES)

    return types.float64(numbers, types.intp), code


@intrinsic
def native_store_release(_typing_context: Any, numbers: Any, _at: Any, _value: Any) -> Any:
    """Compile `store_release`."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = make_array(signature.args[0])(context, builder, arguments[0])
        builder.store_atomic(
            arguments[2], builder.gep(array.data, [arguments[1]]), "release", BYTES
        )
        return context.get_dummy_value()

    return types.void(numbers, types.intp, types.float64), code


@intrinsic
def native_yield_processor(_typing_context: Any) -> Any:
    """Compile `yield_processor`."""

    def code(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(32), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), code


NATIVE: dict[Callable[..., Any], Any] = {
    load_acquire: native_load_acquire,
    prefetch: native_prefetch,
    store_release: native_store_release,
    yield_processor: native_yield_processor,
}
