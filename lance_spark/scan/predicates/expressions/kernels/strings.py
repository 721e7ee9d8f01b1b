"""Kernels of strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from lance_spark.scan.predicates.comparison import text_matches
from lance_spark.scan.predicates.expressions.kernels import Kernel
from lance_spark.scan.predicates.typed_values import is_bytes


def _cased(name: str, arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    (array,) = arrays
    ascii_only = pc.string_is_ascii(array)
    if pc.all(ascii_only).as_py() in (True, None):
        return pc.call_function(f"ascii_{name}", [array])
    # Python changes the case by the tables of Unicode, once for each different string.
    encoded = array.dictionary_encode()
    changed = [getattr(value, name)() for value in encoded.dictionary.to_pylist()]
    return pa.array(changed, dtype).take(encoded.indices)


def _lengths(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = pc.binary_length if is_bytes(arrays[0].type) else pc.utf8_length
    return kernel(arrays[0]).cast(dtype)


def _trimmed(arrays: Sequence[pa.Array], sides: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    kernel = {"both": pc.ascii_trim, "left": pc.ascii_ltrim, "right": pc.ascii_rtrim}[sides]
    return kernel(arrays[0], characters=" ")


def _sliced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    first, stop = detail
    return pc.utf8_slice_codeunits(arrays[0], first, stop)


def _joined(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*arrays, pa.scalar("", dtype), null_handling="emit_null")


def _match(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    match_kind, pattern = detail
    return text_matches(arrays[0], match_kind, pattern)


def _replaced(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    import pyarrow.compute as pc

    old, new = detail
    return pc.replace_substring(arrays[0], pattern=old, replacement=new) if old else arrays[0]


def _null(arrays: Sequence[pa.Array], detail: Any, dtype: pa.DataType) -> pa.Array:
    return pa.nulls(len(arrays[0]), dtype)


KERNELS: dict[str, Kernel] = {
    "lower": partial(_cased, "lower"),
    "upper": partial(_cased, "upper"),
    "length": _lengths,
    "trim": _trimmed,
    "slice": _sliced,
    "concat": _joined,
    "match": _match,
    "replace": _replaced,
    "null": _null,
}
