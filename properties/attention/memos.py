"""What the interpreter works out again for every tensor, remembered: shapes, sizes, and numpy's types.

Two fifths of the time of a launch went there: each operation makes a few tensors, each tensor made the same few
objects from its shape, and comparing two shapes made some more. These objects never change, so tensors of one shape can
share them. No number is computed here.

The first tensor of each shape is made by Triton itself, and the memo is what Triton set. Where another Triton sets
other attributes than these, nothing is remembered and Triton does all of it.
"""

from __future__ import annotations

from typing import Any

from triton.language import core as _core  # type: ignore[import-untyped,unused-ignore]
from triton.runtime import interpreter as _interpreter  # type: ignore[import-untyped,unused-ignore]

__all__ = ["MEMOS"]

_I: Any = _interpreter
_C: Any = _core

_np_dtype = _I._get_np_dtype
_tensor = _C.tensor.__init__
_block_type = _C.block_type.__init__
_dtype_equal = _C.dtype.__eq__
_tuple_equal = _C.tuple.__eq__

_np_dtypes: dict[str, Any] = {}
"""By the name of an element's type."""

_tensors: dict[tuple[Any, ...], tuple[Any, Any]] = {}
"""By shape: numel and shape of a tensor."""

_types: dict[tuple[Any, ...], tuple[Any, Any, str]] = {}
"""By shape: shape and numel of a block's type, and how its name begins."""

_TENSOR = {"handle", "type", "dtype", "numel", "shape"}
_BLOCK_TYPE = {"element_ty", "shape", "numel", "name"}


def _get_np_dtype(tt_dtype: Any) -> Any:
    name = tt_dtype.scalar.name
    found = _np_dtypes.get(name)
    if found is None:
        found = _np_dtypes[name] = _np_dtype(tt_dtype)
    return found


def _init_tensor(self: Any, handle: Any, type: Any) -> None:
    shape = tuple(type.shape) if type.is_block() else ()
    found = _tensors.get(shape)
    if found is not None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = found
        return
    _tensor(self, handle, type)
    if vars(self).keys() == _TENSOR:
        _tensors[shape] = self.numel, self.shape


def _init_block_type(self: Any, element_ty: Any, shape: Any) -> None:
    constant = _C.constexpr
    values = tuple([size.value if isinstance(size, constant) else size for size in shape])
    found = _types.get(values)
    if found is not None:
        self.element_ty = element_ty
        self.shape, self.numel, begins = found
        self.name = f"{begins}{element_ty}>"
        return
    _block_type(self, element_ty, shape)
    ends = f"{element_ty}>"
    if vars(self).keys() == _BLOCK_TYPE and self.name.endswith(ends):
        _types[values] = self.shape, self.numel, self.name.removesuffix(ends)


def _equal_types(self: Any, other: Any) -> Any:
    if isinstance(other, _C.dtype):
        return self.name == other.name
    return _dtype_equal(self, other)


def _equal_shapes(self: Any, other: Any) -> Any:
    """Of tuples of numbers nothing has to be unwrapped."""
    values = other.values if type(other) is _C.tuple else other
    if type(values) is list:
        for value in values:
            if type(value) is not int:
                break
        else:
            return _C.constexpr(self.values == values)
    return _tuple_equal(self, other)


MEMOS: dict[tuple[Any, str], Any] = {
    (_I, "_get_np_dtype"): _get_np_dtype,
    (_C.tensor, "__init__"): _init_tensor,
    (_C.block_type, "__init__"): _init_block_type,
    (_C.dtype, "__eq__"): _equal_types,
    (_C.tuple, "__eq__"): _equal_shapes,
}
"""By owner and name: what stands in for Triton's own."""
