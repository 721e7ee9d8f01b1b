"""Converts batches between the types of a table and the types that Spark expects.

A conversion is planned once, from two schemas, and applied to every batch. Equal columns pass
unchanged. Where only names or nullability of children differ, or a fixed-size list becomes a list,
buffers are reused and only offsets are created. Everything else is a checked cast: a value that the
target cannot hold is an error with the name of the column, never another value. The only exception
is rounding to half floats, in columns of half floats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.blocks import (
    decoded,
    from_unscaled,
    is_short_decimal,
    validity_bitmap,
    with_kept_forms,
)
from lance_spark.errors import (
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    UnsupportedTypeError,
)
from lance_spark.file.blobs.fields import is_v1, with_nulls
from lance_spark.spark.read.projection import Finder
from lance_spark.spark.types.recorded import text_limit

# --------------------------------------------------------------------------------------------------
# Rebuilds Arrow arrays of other types over the same buffers.
#
# Arrays may be slices: each function reads only the window of its argument and returns arrays
# without an offset. So validity bitmaps start at bit 0, and 32-bit offsets cover only the window. A
# function raises OffsetsTooLarge if they cannot.
#
#     list             validity bitmap | offsets, length + 1 | values
#     fixed-size list  validity bitmap | values, length * size

_INT32_MAX = 2**31 - 1

Child = Callable[[Any], Any] | None


class OffsetsTooLarge(Exception):  # noqa: N818 - a signal to the caller, who halves the batch
    """The window is too large for 32-bit offsets."""


def list_window(array: pa.Array) -> tuple[pa.Buffer, int, int]:
    """Return 32-bit offsets from 0, and the start and end of the values of the window."""
    width = np.int64 if _has_long_offsets(array.type) else np.int32
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return pa.py_buffer(np.zeros(len(array) + 1, np.int32)), 0, 0
    offsets = np.frombuffer(buffer, width, len(array) + 1, array.offset * np.dtype(width).itemsize)
    first, last = int(offsets[0]), int(offsets[-1])
    if last - first > _INT32_MAX:
        raise OffsetsTooLarge
    if first or width is np.int64:
        return pa.py_buffer(np.subtract(offsets, first).astype(np.int32)), first, last
    return pa.py_buffer(offsets), first, last


def relabel_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Change the type of a list; the offsets stay."""
    if _has_long_offsets(target):
        return _relabel_long(array, target, child)
    return narrow_list(array, target, child)


def narrow_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Change the type of a list, with offsets of 32 or 64 bits on either side."""
    offsets, first, last = list_window(array)
    values = array.values.slice(first, last - first)
    return _list_of(array, target, [_as_wide(offsets, target)], values, child)


def _relabel_long(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    if len(array) == 0:
        return pa.array([], target)
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, array.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, last - first)
    return _list_of(array, target, [pa.py_buffer(offsets - first)], values, child)


def vectors_to_list(array: pa.Array, target: pa.DataType, child: Child) -> pa.Array:
    """Convert a fixed-size list to a list with offsets."""
    size = array.type.list_size
    values = array.values.slice(array.offset * size, len(array) * size)
    offsets = _as_wide(even_offsets(len(array), size), target)
    return _list_of(array, target, [offsets], values, child)


def to_vectors(array: pa.Array, target: pa.DataType, child: Child, column: str) -> pa.Array:
    """Convert lists of equal size to a fixed-size list; null slots get arbitrary values.

    Raises InvalidInputError: a list has another length.
    """
    size = target.list_size
    if pa.types.is_fixed_size_list(array.type):
        values = array.values.slice(array.offset * size, len(array) * size)
    else:
        values = _dense_values(array, size, column)
    return _list_of(array, target, [], values, child)


def _list_of(
    array: pa.Array, target: pa.DataType, offsets: list[pa.Buffer], values: pa.Array, child: Child
) -> pa.Array:
    """Return lists with other offsets and values, and the nulls of an array."""
    values = values if child is None else child(values)
    buffers = [validity_bitmap(array), *offsets]
    return pa.Array.from_buffers(target, len(array), buffers, array.null_count, children=[values])


def _as_wide(offsets: pa.Buffer, target: pa.DataType) -> pa.Buffer:
    """Return 32-bit offsets in the width that a type has."""
    if not _has_long_offsets(target):
        return offsets
    return pa.py_buffer(np.frombuffer(offsets, np.int32).astype(np.int64))


def _dense_values(array: pa.Array, size: int, column: str) -> pa.Array:
    if len(array) == 0:
        return array.values.slice(0, 0)
    width = np.int64 if _has_long_offsets(array.type) else np.int32
    offsets = np.frombuffer(
        array.buffers()[1], width, len(array) + 1, array.offset * np.dtype(width).itemsize
    )
    lengths = np.diff(offsets)
    wrong = lengths != size
    first = int(offsets[0])
    if not wrong.any():
        return array.values.slice(first, len(array) * size)
    present = array.is_valid().to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(wrong & present)
    if bad.size:
        raise InvalidInputError(
            f"column {column} has vectors of {size} values, but a row has a vector of "
            f"{int(lengths[bad[0]])} values"
        )
    if not present.any():
        return pa.nulls(len(array) * size, array.type.value_type)
    # A null slot needs the values of a vector: it repeats the first valid one.
    starts = np.where(present, offsets[:-1], offsets[:-1][present][0]).astype(np.int64)
    return array.values.take(pa.array((starts[:, None] + np.arange(size)).reshape(-1)))


def narrow_variable(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert strings or binary values from 64-bit to 32-bit offsets, over the same bytes."""
    offsets, first, last = list_window(array)
    data = array.buffers()[2]
    if data is not None:
        data = data.slice(first, last - first)
    return pa.Array.from_buffers(
        target, len(array), [validity_bitmap(array), offsets, data], array.null_count
    )


def to_variable(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert fixed-size binary values to binary values with offsets, over the same bytes."""
    width = array.type.byte_width
    data = array.buffers()[1]
    if data is not None:
        data = data.slice(array.offset * width, len(array) * width)
    offsets = _as_wide(even_offsets(len(array), width), target)
    return pa.Array.from_buffers(
        target, len(array), [validity_bitmap(array), offsets, data], array.null_count
    )


def struct_children(array: pa.Array) -> list[pa.Array]:
    """Return the children of a struct, reduced to its window."""
    return [array.field(i) for i in range(array.type.num_fields)]


@lru_cache(maxsize=8)
def even_offsets(length: int, size: int) -> pa.Buffer:
    """Return offsets of `length` lists of `size` values each."""
    if length * size > _INT32_MAX:
        raise OffsetsTooLarge
    return pa.py_buffer(np.arange(length + 1, dtype=np.int32) * np.int32(size))


def _has_long_offsets(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_large_list(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )


# --------------------------------------------------------------------------------------------------
# GEOMETRY and GEOGRAPHY: Spark's batches have structs of SRID and WKB, tables have WKB.
#
# Spark checks that all values of a column have the SRID of its type.

_MARKS = (b"geometry", b"geography")


def is_spatial(dtype: pa.DataType) -> bool:
    """Return whether a type is the struct by which Spark sends geometries."""
    if not pa.types.is_struct(dtype) or [child.name for child in dtype] != ["srid", "wkb"]:
        return False
    metadata = dtype.field("wkb").metadata or {}
    return any(metadata.get(mark) == b"true" for mark in _MARKS)


def to_wkb(array: Any) -> Any:
    """Return the WKB of geometries, null where they are null."""
    wkb = struct_children(array)[1]
    if not array.null_count:
        return wkb
    import pyarrow.compute as pc

    return pc.if_else(array.is_valid(), wkb, None)


def from_wkb(dtype: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that makes geometries of Spark from WKB."""
    srid = int(dtype.field("wkb").metadata[b"srid"])

    def step(array: Any) -> Any:
        srids = pa.array(np.full(len(array), srid, np.int32))
        wkb = array.fill_null(b"") if array.null_count else array
        return pa.Array.from_buffers(
            dtype, len(array), [validity_bitmap(array)], array.null_count, children=[srids, wkb]
        )

    return step


# --------------------------------------------------------------------------------------------------
# Converts batches between the types of a table and the types that Spark expects.

Step = Callable[[Any], Any]

#: Maximum bytes of a dictionary that stays: all batches carry it, however few rows they have.
_MAX_DICTIONARY_BYTES = 256 * 1024
#: Maximum number of characters of a value in errors.
_SHOWN = 60
_DAY_NANOSECONDS = 86_400_000_000_000
#: In place of the index of a child that a struct lacks.
_ABSENT = -1


class BatchConverter:
    """Converts batches of one schema to another.

    - `source`, `target`: Columns are matched by name; columns that `target` lacks are left out.
    - `reading`: True from a table to Spark: types must fit for all values. False from Spark to a
      table: a wider type is converted to a narrower one, with a check of each value.
    - `keep_dictionaries`: Whether dictionary arrays of strings and bytes stay as they are, if Spark
      can read them.
    - `unscaled`: Whether decimals that a scan returns as their unscaled values stay as they are.
    - `fill_children`: Whether nullable children of structs that `source` lacks become null, at any
      depth.

    Raises SchemaMismatchError: a column is missing, or its type cannot be converted.
    """

    def __init__(
        self,
        source: pa.Schema,
        target: pa.Schema,
        *,
        reading: bool,
        keep_dictionaries: bool = False,
        unscaled: bool = False,
        fill_children: bool = False,
    ) -> None:
        self.target = target
        self._keeps = keep_dictionaries
        self._unscaled = unscaled
        self._source = source
        planner = _Planner(reading, fill_children)
        self._columns: list[tuple[int, Step | None]] = []
        found = Finder(source.names)
        for field in target:
            index = found(field.name)
            if index < 0:
                raise SchemaMismatchError(
                    f"column {field.name} not found; the columns are {', '.join(source.names)}"
                )
            self._columns.append((index, planner.field(source.field(index), field, field.name)))

    def __call__(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch in the target schema, in pieces if it is too large for 32-bit offsets.

        Raises InvalidInputError, UnsupportedTypeError: the target type cannot hold a value.
        """
        try:
            arrays = [
                self._column(batch.column(index), step, self._source.field(index).type, field)
                for (index, step), field in zip(self._columns, self.target, strict=True)
            ]
        except OffsetsTooLarge as error:
            if batch.num_rows < 2:
                raise UnsupportedTypeError(
                    "one row has more than 2 GiB in one column, more than a batch of Spark can hold"
                ) from error
            half = batch.num_rows // 2
            yield from self(batch.slice(0, half))
            yield from self(batch.slice(half))
            return
        is_kept = self._keeps or self._unscaled
        schema = with_kept_forms(self.target, arrays) if is_kept else self.target
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(
        self, array: pa.Array, step: Step | None, source: pa.DataType, target: pa.Field
    ) -> pa.Array:
        if self._unscaled and pa.types.is_int64(array.type) and is_short_decimal(source):
            if step is None:
                return array
            array = from_unscaled(array, source)
        if self._keeps and pa.types.is_dictionary(array.type):
            if is_short_dictionary(array) and (target.nullable or not array.null_count):
                return array
            # Steps are planned for the type of the column, not for a dictionary that a scan kept.
            array = decoded(array)
        return array if step is None else step(array)


def is_short_dictionary(array: pa.DictionaryArray) -> bool:
    """Return whether Spark can read a dictionary array of strings or bytes as it is.

    A batch carries the whole dictionary, which must be short beside the batch.
    """
    values, index_type = array.dictionary, array.type.index_type
    return bool(
        (_is_text(values.type) or _is_bytes(values.type))
        and not pa.types.is_fixed_size_binary(values.type)
        and pa.types.is_signed_integer(index_type)
        and index_type.bit_width <= 32
        and values.null_count == 0
        and 2 * len(values) <= len(array)
        and values.nbytes <= _MAX_DICTIONARY_BYTES
    )


def check_conversion(
    source: pa.Schema, target: pa.Schema, *, reading: bool, fill_children: bool = False
) -> None:
    """Refuse schemas between which no batch can be converted.

    Raises SchemaMismatchError: as `BatchConverter`.
    """
    BatchConverter(source, target, reading=reading, fill_children=fill_children)


@dataclass(frozen=True, slots=True)
class _Planner:
    reading: bool
    fill_children: bool

    def field(self, source: pa.Field, target: pa.Field, column: str) -> Step | None:
        """Plan the conversion of one field; None if the types are equal."""
        step = self.value(source, target, column)
        if source.nullable and not target.nullable:
            return _then(_no_nulls(column), step)
        return step

    def value(self, source: pa.Field, target: pa.Field, column: str) -> Step | None:
        """Plan the conversion of the values of a field, which may be null."""
        step = self.type(source.type, target.type, column)
        if self.reading and is_v1(source) and pa.types.is_struct(source.type):
            return _then(with_nulls, step)
        limit = None if self.reading else text_limit(target)
        return step if limit is None else _then(step, _fitted(*limit, column))

    def type(self, source: pa.DataType, target: pa.DataType, column: str) -> Step | None:
        is_checked = _has_nanosecond_times(source) if self.reading else _has_limits(target)
        if source.equals(target) and not is_checked:
            return None
        if isinstance(source, pa.BaseExtensionType):
            return _then(_storage, self.type(source.storage_type, target, column))
        if isinstance(target, pa.BaseExtensionType):
            inner = self.type(source, target.storage_type, column)
            return _then(inner, lambda array: pa.ExtensionArray.from_storage(target, array))
        if pa.types.is_dictionary(source):
            return _then(decoded, self.type(source.value_type, target, column))
        if pa.types.is_dictionary(target):
            inner = self.type(source, target.value_type, column)
            return _then(inner, self._encoded(target, column))
        if pa.types.is_null(source):
            return _nulls(target)
        if pa.types.is_struct(source) and pa.types.is_struct(target):
            return self._struct(source, target, column)
        if pa.types.is_map(source) and pa.types.is_map(target):
            return self._map(source, target, column)
        if _is_list(source) and _is_list(target):
            return self._list(source, target, column)
        if is_spatial(source) and _is_bytes(target):
            return _then(to_wkb, self.type(pa.binary(), target, column))
        if _is_bytes(source) and is_spatial(target):
            return _then(self.type(source, pa.binary(), column), from_wkb(target))
        if _is_text(source) and _is_text(target):
            return self._variable(source, target, column)
        if _is_bytes(source) and _is_bytes(target):
            return self._variable(source, target, column)
        reason = self._cast(source, target)
        if reason is None:
            raise SchemaMismatchError(self._no_way(source, target, column))
        if pa.types.is_float16(target):
            return _rounded(target, column)
        if pa.types.is_time(target) and pa.types.is_int64(source):
            return _then(_nanoseconds(column), self._checked(target, column, reason))
        return self._checked(target, column, reason)

    def _struct(self, source: pa.DataType, target: pa.DataType, column: str) -> Step:
        plans: list[tuple[int, Step | None, Callable[[Any, Any], None] | None]] = []
        names = [child.name for child in _fields(source)]
        position_of = Finder(names)
        for field in _fields(target):
            name = f"{column}.{field.name}"
            index = position_of(field.name)
            if index < 0 and self.fill_children and field.nullable:
                plans.append((_ABSENT, _nulls(field.type), None))
                continue
            if index < 0:
                raise SchemaMismatchError(
                    f"column {name} not found; {column} has {', '.join(names)}"
                )
            child = source.field(index)
            # A child of a null struct may be null even if it is declared as non-nullable.
            check = _no_nulls_below(name) if child.nullable and not field.nullable else None
            plans.append((index, self.value(child, field, name), check))
        if not self.reading:
            found = [names[index] for index, _, _ in plans if index != _ABSENT]
            _refuse_others(names, found, column)

        def step(array: Any) -> Any:
            bitmap = validity_bitmap(array)
            children = struct_children(array)
            converted = []
            for index, plan, check in plans:
                child = array if index == _ABSENT else children[index]
                if check is not None:
                    check(array, child)
                converted.append(child if plan is None else plan(child))
            return pa.Array.from_buffers(
                target, len(array), [bitmap], array.null_count, children=converted
            )

        return step

    def _map(self, source: pa.DataType, target: pa.DataType, column: str) -> Step:
        key = self.field(source.key_field, target.key_field, f"{column}.key")
        item = self.field(source.item_field, target.item_field, f"{column}.value")
        entries = pa.struct([target.key_field, target.item_field])

        def step(array: Any) -> Any:
            offsets, first, last = list_window(array)
            length = last - first
            keys = array.keys.slice(first, length)
            items = array.items.slice(first, length)
            pairs = pa.Array.from_buffers(
                entries,
                length,
                [None],
                0,
                children=[
                    keys if key is None else key(keys),
                    items if item is None else item(items),
                ],
            )
            return pa.Array.from_buffers(
                target,
                len(array),
                [validity_bitmap(array), offsets],
                array.null_count,
                children=[pairs],
            )

        return step

    def _list(self, source: pa.DataType, target: pa.DataType, column: str) -> Step:
        target_size = target.list_size if pa.types.is_fixed_size_list(target) else None
        source_size = source.list_size if pa.types.is_fixed_size_list(source) else None
        if target_size is not None and source_size is not None and target_size != source_size:
            raise SchemaMismatchError(
                f"column {column} has vectors of {source_size} values, not of {target_size} values"
            )
        child = self.field(source.value_field, target.value_field, f"{column}.element")
        if target_size is not None:
            return lambda array: to_vectors(array, target, child, column)
        if source_size is not None:
            return lambda array: vectors_to_list(array, target, child)
        if pa.types.is_large_list(source) != pa.types.is_large_list(target):
            return lambda array: narrow_list(array, target, child)
        return lambda array: relabel_list(array, target, child)

    def _variable(self, source: pa.DataType, target: pa.DataType, column: str) -> Step:
        if pa.types.is_fixed_size_binary(target):
            if self.reading:
                raise SchemaMismatchError(self._no_way(source, target, column))
            return self._checked(target, column, f"not {target.byte_width} bytes long")
        if pa.types.is_fixed_size_binary(source):
            return lambda array: to_variable(array, target)
        if _is_large(source) and not _is_large(target):
            return lambda array: narrow_variable(array, target)
        return self._checked(target, column, "too long")

    def _cast(self, source: pa.DataType, target: pa.DataType) -> str | None:
        """Describe why the cast refuses a value; None if the types have no cast."""
        if pa.types.is_integer(source) and pa.types.is_integer(target):
            if pa.types.is_uint64(source) and pa.types.is_int64(target):
                return "past 2^63 - 1, which Spark's bigint cannot hold"
            if self.reading and not _int_fits(source, target):
                return None
            return f"outside the range of {target}"
        if pa.types.is_floating(source) and pa.types.is_floating(target):
            # Only half floats have no type in Spark and are rounded; other types keep their values.
            narrowing = source.bit_width > target.bit_width
            rounding = (
                not self.reading and pa.types.is_float16(target) and pa.types.is_float32(source)
            )
            return None if narrowing and not rounding else f"outside the range of {target}"
        if pa.types.is_decimal(source) and pa.types.is_decimal(target):
            fits = (
                target.scale >= source.scale
                and target.precision - target.scale >= source.precision - source.scale
            )
            return f"outside the range of {target}" if fits or not self.reading else None
        if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
            if (source.tz is None) != (target.tz is None):
                return None
            return _finer(target)
        if pa.types.is_duration(source) and pa.types.is_duration(target):
            return _finer(target)
        if pa.types.is_date(source) and pa.types.is_date(target):
            return "that is not a whole day"
        if pa.types.is_time(source) and (pa.types.is_time(target) or pa.types.is_int64(target)):
            return _finer(target)
        if pa.types.is_int64(source) and pa.types.is_time(target) and not self.reading:
            return _finer(target)
        return None

    def _checked(self, target: pa.DataType, column: str, reason: str) -> Step:
        error: type[LanceError] = UnsupportedTypeError if self.reading else InvalidInputError

        def step(array: Any) -> Any:
            try:
                if pa.types.is_int64(target) and pa.types.is_time(array.type):
                    return array.cast(pa.time64("ns")).view(target)
                if pa.types.is_time(target) and self.reading:
                    _whole_microseconds(array)
                return array.cast(target)
            except pa.ArrowInvalid as cause:
                value = _refused(array, target)
                raise error(f"column {column} holds a value {reason}{value}") from cause

        return step

    def _encoded(self, target: pa.DataType, column: str) -> Step:
        cast = self._checked(
            target, column, f"that exceeds the range of {target.index_type} dictionary indices"
        )
        return lambda array: cast(array.dictionary_encode())

    def _no_way(self, source: pa.DataType, target: pa.DataType, column: str) -> str:
        if self.reading:
            return f"column {column} is {source} in the table and cannot be read as {target}"
        return (
            f"column {column} is {target} in the table, and {source} cannot be written to it; cast "
            "the column, or overwrite the table"
        )


def _refused(array: Any, target: pa.DataType) -> str:
    """Return the text of the first value that a cast refuses, after a colon; empty if none is."""
    from pyarrow.lib import ArrowException

    if not len(array):
        return ""
    while len(array) > 1:
        half = len(array) // 2
        try:
            array.slice(0, half).cast(target)
            array = array.slice(half)
        except ArrowException:
            array = array.slice(0, half)
    try:
        shown = repr(array[0].as_py())
    except (ValueError, OverflowError):
        # Python has no such date or time.
        return ""
    return f": {shown[:_SHOWN]}"


def _finer(target: pa.DataType) -> str:
    units = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
    unit = units[target.unit] if hasattr(target, "unit") else "nanoseconds"
    if pa.types.is_time(target) and target.unit == "ns":
        # Spark sends TIME in nanoseconds, but it has microsecond precision.
        unit = "microseconds"
    return f"finer than {unit}, or outside the range of {unit}"


def _whole_microseconds(array: Any) -> None:
    if array.type.equals(pa.time64("ns")):
        array.cast(pa.time64("us"))


def _nanoseconds(column: str) -> Step:
    def step(array: Any) -> Any:
        import pyarrow.compute as pc

        ends = pc.min_max(array)
        if ends["min"].is_valid and not 0 <= ends["min"].as_py() <= ends["max"].as_py() < (
            _DAY_NANOSECONDS
        ):
            raise InvalidInputError(
                f"column {column} holds a value that is not a time of day in nanoseconds"
            )
        return array.view(pa.time64("ns"))

    return step


def _rounded(target: pa.DataType, column: str) -> Step:
    def step(array: Any) -> Any:
        values = array.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            halves = values.astype(np.float16)
        outside = np.isinf(halves) & ~np.isinf(values)
        if np.any(outside):
            raise InvalidInputError(
                f"column {column} holds a value outside the range of half floats: "
                f"{values[np.argmax(outside)]}"
            )
        return pa.Array.from_buffers(
            target, len(array), [validity_bitmap(array), pa.py_buffer(halves)], array.null_count
        )

    return step


def _has_limits(dtype: pa.DataType) -> bool:
    """Return whether a type has texts inside it that Spark limits."""
    children = [dtype.field(i) for i in range(dtype.num_fields)]
    return any(text_limit(child) is not None or _has_limits(child.type) for child in children)


def _fitted(dtype: str, length: int, is_padded: bool, column: str) -> Step:
    """Return a step that writes texts as Spark does: it cuts spaces after the last character that
    fits, and pads char(n). By name, Spark has done both.
    """

    def step(array: Any) -> Any:
        import pyarrow.compute as pc

        lengths = pc.utf8_length(array)
        bounds = pc.min_max(lengths)
        if bounds["max"].is_valid and bounds["max"].as_py() > length:
            too_long = pc.greater(pc.utf8_length(pc.utf8_rtrim(array, " ")), length)
            if pc.any(too_long).as_py():
                text = array.filter(too_long)[0].as_py()
                raise InvalidInputError(
                    f"column {column} is {dtype}, which cannot hold {text[:100]!r} of "
                    f"{len(text)} characters; shorten the value"
                )
            array = pc.utf8_slice_codeunits(array, 0, length)
        if is_padded and bounds["min"].is_valid and bounds["min"].as_py() < length:
            array = pc.utf8_rpad(array, length)
        return array

    return step


def _nulls(target: pa.DataType) -> Step:
    return lambda array: pa.nulls(len(array), target)


def _no_nulls(column: str) -> Step:
    def step(array: Any) -> Any:
        if array.null_count:
            raise _null_refused(column)
        return array

    return step


def _no_nulls_below(column: str) -> Callable[[Any, Any], None]:
    def check(parent: Any, child: Any) -> None:
        if not child.null_count:
            return
        if not parent.null_count:
            raise _null_refused(column)
        present = parent.is_valid().to_numpy(zero_copy_only=False)
        if np.any(present & child.is_null().to_numpy(zero_copy_only=False)):
            raise _null_refused(column)

    return check


def _null_refused(column: str) -> InvalidInputError:
    return InvalidInputError(f"column {column} holds a null but is not nullable")


def _refuse_others(source_names: list[str], target_names: list[str], column: str) -> None:
    unknown = [name for name in source_names if name not in target_names]
    if unknown:
        raise SchemaMismatchError(
            f"column {column} has fields that the table lacks: {', '.join(unknown)}"
        )


def _then(first: Step | None, second: Step | None) -> Step | None:
    if first is None or second is None:
        return first or second
    return lambda array: second(first(array))


def _storage(array: Any) -> Any:
    return array.storage


def _fields(struct: pa.DataType) -> list[pa.Field]:
    return [struct.field(i) for i in range(struct.num_fields)]


def _is_list(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or (pa.types.is_fixed_size_binary(data_type) and not pa.types.is_decimal(data_type))
    )


def _is_large(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type))


def _has_nanosecond_times(data_type: pa.DataType) -> bool:
    """Return whether an Arrow type can hold times of day that Spark rounds."""
    if data_type.equals(pa.time64("ns")):
        return True
    return any(_has_nanosecond_times(data_type.field(i).type) for i in range(data_type.num_fields))


def _int_fits(source: pa.DataType, target: pa.DataType) -> bool:
    signed = pa.types.is_signed_integer
    if signed(source) == signed(target):
        return bool(source.bit_width <= target.bit_width)
    return bool(signed(target) and source.bit_width < target.bit_width)
