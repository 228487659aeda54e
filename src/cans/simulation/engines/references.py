# mypy: disable-error-code="name-defined, misc, attr-defined, untyped-decorator"
# (numba has no types of its own)
"""Hands named tuples to compiled functions as one pointer each.

numba passes a named tuple of arrays by value, a dozen numbers for each array in every call, and
spends minutes on compiling functions of several hundred arguments. A reference has the same fields,
so that the functions need not know.
"""

from __future__ import annotations

from typing import Any

import numba
from numba.core import types
from numba.core.cgutils import create_struct_proxy, get_null_value
from numba.experimental import structref
from numba.experimental.jitclass.base import imp_dtor
from numba.extending import intrinsic


@structref.register
class ReferenceType(types.StructRef):
    """The type of a reference, as numba sees it: the fields of the named tuple behind it."""

    def preprocess_fields(self, fields: Any) -> Any:
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Reference(structref.StructRefProxy):
    """A reference in Python: only to be handed to compiled functions."""


structref.define_boxing(ReferenceType, Reference)


def type_of(kind: types.Type) -> types.Type:
    """The type of a reference to a named tuple; other types are what they are."""
    if not isinstance(kind, types.BaseNamedTuple):
        return kind
    named = zip(kind.fields, kind.types, strict=True)
    return ReferenceType([(name, type_of(field)) for name, field in named])


@intrinsic
def _refer(typing_context: Any, fields: types.Type) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _stored(context, builder, fields, arguments[0])

    return type_of(fields)(fields), generate


def _stored(context: Any, builder: Any, kind: types.Type, value: Any) -> Any:
    """Code that copies a named tuple to the heap, tuples within it too. Its arrays are not counted
    as used: nothing that is compiled keeps one, and who calls it has them for as long as it runs.
    So they have no counter there, which would be locked and unlocked several times a round."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = get_null_value(array.meminfo.type)
        return array._getvalue()
    if not isinstance(kind, types.BaseNamedTuple):
        context.nrt.incref(builder, kind, value)
        return value
    reference = type_of(kind)
    layout = context.data_model_manager[reference.get_data_type()].get_value_type()
    size = context.get_constant(types.uintp, context.get_abi_sizeof(layout))
    end = imp_dtor(context, builder.module, reference)
    memory = context.nrt.meminfo_alloc_dtor(builder, size, end)
    pointer = builder.bitcast(context.nrt.meminfo_data(builder, memory), layout.as_pointer())
    builder.store(get_null_value(layout), pointer)
    data = create_struct_proxy(reference.get_data_type())(context, builder, ref=pointer)
    for position, (name, field) in enumerate(zip(kind.fields, kind.types, strict=True)):
        item = builder.extract_value(value, position)
        setattr(data, name, _stored(context, builder, field, item))
    helper = context.make_helper(builder, reference)
    helper.meminfo = memory
    return helper._getvalue()


@numba.njit(cache=True)
def refer(fields: Any) -> Any:
    """A reference to a named tuple of arrays and numbers."""
    return _refer(fields)
