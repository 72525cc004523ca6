"""Named tuples of arrays that compiled functions pass to one another by reference.

numba passes a tuple by value: each call copies seven numbers per array, for a tuple of 20 arrays
more than a kilobyte. By reference, a call copies one pointer, and a function loads what it uses.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pillarbox.experiments.base.interpreter import outside_current_directory

with outside_current_directory():
    from numba.core import cgutils, types
    from numba.core.imputils import impl_ret_borrowed
    from numba.core.typing.templates import AttributeTemplate
    from numba.extending import (
        infer_getattr,
        intrinsic,
        lower_getattr_generic,
        models,
        register_model,
    )

Tuple = TypeVar("Tuple")


def by_reference(state: Tuple) -> Tuple:
    """Return a named tuple, of which compiled functions then pass a pointer.

    The pointer is valid until the function that calls `by_reference` returns.
    """
    return state


class TupleReference(types.Type):
    """numba's type of a pointer to a named tuple."""

    def __init__(self, pointee: Any) -> None:
        self.pointee = pointee
        super().__init__(f"TupleReference({pointee})")


@register_model(TupleReference)
class _TupleReferenceModel(models.PrimitiveModel):
    """Memory layout of a TupleReference: a pointer."""

    def __init__(self, manager: Any, kind: Any) -> None:
        pointee = manager.lookup(kind.pointee).get_value_type()
        super().__init__(manager, kind, pointee.as_pointer())


@infer_getattr
class _TupleReferenceFields(AttributeTemplate):
    """Types of the fields of a named tuple that is passed by reference."""

    key = TupleReference

    def generic_resolve(self, kind: Any, field: str) -> Any:  # type: ignore[override]
        fields = kind.pointee.fields
        return kind.pointee.types[fields.index(field)] if field in fields else None


@lower_getattr_generic(TupleReference)  # type: ignore[untyped-decorator]
def _load_field(context: Any, builder: Any, kind: Any, value: Any, field: str) -> Any:
    position = kind.pointee.fields.index(field)
    found = builder.load(cgutils.gep_inbounds(builder, value, 0, position))
    # The function counts one more reference to an array, if it counts references.
    return impl_ret_borrowed(context, builder, kind.pointee.types[position], found)


@intrinsic
def native_by_reference(_typing_context: Any, state: Any) -> Any:
    """Store a named tuple on the stack of the calling function, and return a pointer to it."""

    def code(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return cgutils.alloca_once_value(builder, arguments[0])

    return TupleReference(state)(state), code
