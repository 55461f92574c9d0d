"""Arrays of compiled code that are an address and a shape, and nothing else.

An array of numba's is ten numbers, which are put together, stored and taken apart wherever it has a
name: most of what LLVM read of a stage of a model. These are C-contiguous, of memory that somebody
else keeps, and what is asked for must be inside: no index is counted from the end. A piece
(pieces.py) takes one for the array that it stands for.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba.core import cgutils as untyped_cgutils
from numba.core import types
from numba.core.datamodel.models import StructModel
from numba.core.datamodel.registry import register_default
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

cgutils: Any = untyped_cgutils
_signature: Any = signature


class Bare(types.CPointer):
    """A pointer to elements, or to rows, that knows how many there are.

    As a pointer it is among the first that numba looks for where something is indexed.
    array: numba's type of the array that it stands for, of one or two dimensions.
    """

    def __init__(self, dtype: Any, ndim: int) -> None:
        self.array: Any = types.Array(dtype, ndim, "C")
        super().__init__(dtype if ndim == 1 else Bare(dtype, 1))  # type: ignore[no-untyped-call]
        self.name = f"Bare({self.array})"


class _Model(StructModel):
    """data: the address; then the length of every dimension."""

    def __init__(self, manager: Any, kind: Bare) -> None:
        lengths = [(f"n{k}", types.intp) for k in range(kind.array.ndim)]
        pointer: Any = types.CPointer
        super().__init__(manager, kind, [("data", pointer(kind.array.dtype)), *lengths])  # type: ignore[no-untyped-call]
        self._array = manager.lookup(kind.array)

    def get_argument_type(self) -> Any:
        """As numba passes the array."""
        return self._array.get_argument_type()

    def as_argument(self, builder: Any, value: Any) -> Any:
        """The same of a value: nobody owns it."""
        owner, parent, *_ = self.get_argument_type()
        data, shape = _parts(builder, value)
        n_bytes = _number(self._array.get_member_fe_type("data").dtype.bitwidth // 8)
        strides = _strides(builder, shape, n_bytes)
        n_items = shape[0]
        for length in shape[1:]:
            n_items = builder.mul(n_items, length)
        nobody = (ir.Constant(owner, None), ir.Constant(parent, None))
        return (*nobody, n_items, n_bytes, data, tuple(shape), tuple(strides))


register_default(Bare)(_Model)


def _number(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _parts(builder: Any, value: Any) -> tuple[Any, list[Any]]:
    """Address and lengths."""
    data, *shape = [builder.extract_value(value, k) for k in range(len(value.type.elements))]
    return data, shape


def _strides(builder: Any, shape: list[Any], n_bytes: Any) -> list[Any]:
    """Of rows one behind the other; n_bytes: of one element."""
    strides = [n_bytes]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(length, strides[0]))
    return strides


def packed(context: Any, builder: Any, kind: Bare, data: Any, shape: list[Any]) -> Any:
    """A value of an address and lengths."""
    value = ir.Constant(context.get_value_type(kind), ir.Undefined)
    for k, part in enumerate((data, *shape)):
        value = builder.insert_value(value, part, k)
    return value


@infer_global(len)  # type: ignore[no-untyped-call]
class _Length(AbstractTemplate):
    def generic(self, arguments: Any, _named: Any) -> Any:
        (of,) = arguments
        return _signature(types.intp, of) if isinstance(of, Bare) else None


def _place(builder: Any, of: Any, index: Any) -> Any:
    """Where an element, or a row, begins."""
    data, (_, *width) = _parts(builder, of)
    for length in width:
        index = builder.mul(index, length)
    return builder.gep(data, [index], inbounds=True)


@lower_builtin(len, Bare)  # type: ignore[untyped-decorator,no-untyped-call]
def _length(_context: Any, builder: Any, _: Any, values: Any) -> Any:
    return builder.extract_value(values[0], 1)


@lower_builtin(operator.getitem, Bare, types.Integer)  # type: ignore[untyped-decorator,no-untyped-call]
def _get(context: Any, builder: Any, found: Any, values: Any) -> Any:
    place = _place(builder, *values)
    if not isinstance(found.return_type, Bare):
        return context.unpack_value(builder, found.return_type, place)
    _, (_, width) = _parts(builder, values[0])
    return packed(context, builder, found.return_type, _unknown(builder, place), [width])


def _unknown(builder: Any, place: Any) -> Any:
    """A row's place, of which LLVM knows nothing: no instruction, but it cannot look through it.

    Where a loop over rows has one over columns, LLVM asks before the outer one whether what is
    written overlaps with what is read, over all rows at once. Columns side by side in one matrix
    do, and the loop that is not vectorised runs.
    """
    same = ir.FunctionType(place.type, [place.type])
    return builder.asm(same, "", "=r,0", [place], side_effect=False)


@lower_builtin(operator.setitem, Bare, types.Integer, types.Any)  # type: ignore[untyped-decorator,no-untyped-call]
def _set(context: Any, builder: Any, found: Any, values: Any) -> Any:
    of, index, value = values
    place = _place(builder, of, index)
    context.pack_value(builder, found.args[2], value, place)
    return context.get_dummy_value()


def _part(typing: Any, of: Any, _first: Any, _n: Any) -> Any:
    """n elements, or rows, from one on; of numba's arrays, too."""
    if not isinstance(of, Bare):
        cut = typing.resolve_function_type(operator.getitem, (of, types.slice2_type), {})
        return cut.return_type(of, types.intp, types.intp), _cut

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        whole, first, n = values
        _, (_, *width) = _parts(builder, whole)
        return packed(context, builder, of, _place(builder, whole, first), [n, *width])

    return of(of, types.intp, types.intp), generate


def _cut(context: Any, builder: Any, found: Any, values: Any) -> Any:
    def slice_of(of: Any, first: int, n: int) -> Any:
        return of[first : first + n]

    return context.compile_internal(builder, slice_of, found, values)


def _array_of(_typing: Any, of: Any) -> Any:
    """numba's array, for all that this one cannot; an array itself is returned as it is."""
    if not isinstance(of, Bare):
        return of(of), lambda _context, _builder, _signature, values: values[0]
    array = of.array

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:
        data, shape = _parts(builder, values[0])
        n_bytes = _number(context.get_abi_sizeof(context.get_data_type(array.dtype)))
        strides = _strides(builder, shape, n_bytes)
        made: Any = make_array
        found = made(array)(context, builder)
        fill: Any = populate_array
        fill(found, data=data, shape=shape, strides=strides, itemsize=n_bytes, meminfo=None)
        return found._getvalue()

    return array(of), generate


def _reshaped(_typing: Any, of: Any, n: Any, width: Any) -> Any:
    """The same elements as rows of another width."""
    if not isinstance(of, Bare):
        return None

    def generate(context: Any, builder: Any, found: Any, values: Any) -> Any:
        data, _ = _parts(builder, values[0])
        return packed(context, builder, found.return_type, data, list(values[1:]))

    return Bare(of.array.dtype, 2)(of, types.intp, types.intp), generate


# As values, since a checker of types takes an intrinsic for a function of its first argument, too.
part: Any = intrinsic(_part)
array_of: Any = intrinsic(_array_of)
reshaped: Any = intrinsic(_reshaped)
