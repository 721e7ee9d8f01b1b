"""Page statistics of version 0.1: null count and bounds of each batch, and pruning with them.

The statistics of a file are one batch of a small table: its schema, `StatisticsMetadata.schema`,
has a struct for each field that has statistics, named by the field's id, and its rows are the
batches of the file:

==========  ======================  ================================================================
child       type                    value
==========  ======================  ================================================================
null_count  int64, not null         nulls of the batch
min_value   type of the field       least value without nulls and NaN; of strings, 64 bytes
max_value   type of the field       greatest value without nulls and NaN; of strings longer than 64
                                    bytes, a value of at most 64 bytes that is greater
==========  ======================  ================================================================

Pages and page table have the same form as in the file, with ids from 0 on. An unknown bound (all
values null, no greater value) is the least or greatest value of the type, or an empty string. Empty
strings are read as nulls, as everywhere in version 0.1, so a null bound is unknown. pylance keeps
statistics for bools, integers, floats of 32 and 64 bits, dates, strings, bytes and decimals of 128
bits, at top level and in structs.

Each child may be missing. A missing null count means that each batch may have nulls, a missing
bound is unknown for each batch, and without both bounds there are no statistics of the field.
Children with other names are ignored.

Pruning follows the values that a read returns. In place of a null of the writer, a read returns the
content of its slot, which the bounds do not cover: so batches with nulls are kept, unless the type
reads nulls as null. Empty strings are nulls. NaN may be greater than all values (Spark) or
unordered (Arrow).

pylance cuts strings at a character before it compares them. So a string of more than 64 bytes can
be above the greatest value that pylance wrote: the cut string has 61 to 64 bytes, and is the start
of the string from which the bound was made. Bounds that have the first 61 bytes of the searched
value are therefore not trusted; pylance trusts them, and leaves rows out.

Specification: format/file of the legacy format, "Statistics".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.blocks import flags_of, is_text, is_variable
from lance_spark.encoding.levels import BoolArray
from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import CorruptFileError, InvalidInputError, LanceError
from lance_spark.file.footer import Tail
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.fields import FieldNode, open_field
from lance_spark.file.v0_1.footer import LegacyFooter, read_pages
from lance_spark.file.v0_1.pages import Numbers
from lance_spark.storage.source import ByteSource, run_plans

Op = Literal["==", "!=", "<", "<=", ">", ">=", "is_null", "is_not_null"]

#: Strings of this number of bytes may have been cut.
_CUT = 64
#: Minimum bytes of a string that was cut there, as no character has more than four bytes.
_SHORTEST_CUT = _CUT - 3
_PARTS = ("null_count", "min_value", "max_value")


@dataclass(frozen=True, slots=True, eq=False)
class PageStatistics:
    """The statistics of the values of one field, batch by batch.

    - `bounds`: First row of each batch, and the number of all rows.
    - `null_count`: Nulls that the writer saw; they are not stored as nulls. Null if unknown.
    - `minimum`, `maximum`: Bounds of the field's type for all values of a batch except NaN. Null if
      unknown.
    """

    bounds: Numbers
    null_count: pa.Int64Array
    minimum: pa.Array
    maximum: pa.Array


def read_statistics(
    source: ByteSource, tail: Tail, footer: LegacyFooter, field_id: int
) -> PageStatistics | None:
    """Read the statistics of a field; None if the file lacks them.

    Raises CorruptFileError: the statistics are damaged.
    """
    if footer.statistics is None:
        return None
    try:
        schema = Schema.from_protos(footer.statistics.schema)
        field = next((f for f in schema.fields if f.name == str(field_id)), None)
        if field is None:
            return None
        return _read(source, tail, footer, field)
    except LanceError as error:
        if tail.name in str(error):
            raise
        raise CorruptFileError(
            f"{tail.name}: the statistics of field {field_id} are damaged: {error}"
        ) from None


def prune(statistics: PageStatistics, op: Op, value: Any = None) -> RowRanges:
    """Return the rows for which a condition on the field can be true.

    - `op`: ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=`` (the field's value on the left side),
      ``is_null`` or ``is_not_null``.
    - `value`: A Python value or an Arrow scalar. If it does not fit the type of the field, all rows
      are returned.

    Returns whole batches, neighbours merged, in order. Batches with unknown statistics are
    included. Raises InvalidInputError: the operator is unknown.
    """
    keep = _may_match(statistics, op, value)
    keep &= np.diff(statistics.bounds) > 0
    return RowRanges.of_blocks(statistics.bounds, keep)


def _read(
    source: ByteSource, tail: Tail, footer: LegacyFooter, field: Field
) -> PageStatistics | None:
    assert footer.statistics is not None
    parts = {child.name: child for child in field.children if child.name in _PARTS}
    bounds = [parts[name].arrow_field.type for name in _PARTS[1:] if name in parts]
    if not bounds:
        return None
    if "null_count" in parts and not pat.is_int64(parts["null_count"].arrow_field.type):
        raise CorruptFileError(
            f"null_count is expected to be int64, not {parts['null_count'].logical_type}"
        )
    if bounds[0] != bounds[-1]:
        raise CorruptFileError(f"min_value is {bounds[0]}, max_value is {bounds[-1]}")
    table = footer.statistics.page_table_position
    # The table has a row for each entry of `fields`. Early files do not list them.
    listed = list(footer.statistics.fields)
    try:
        rows = {part.id: listed.index(part.id) if listed else part.id for part in parts.values()}
    except ValueError:
        raise CorruptFileError(
            f"the page table has rows for the fields {listed}, and none for one of "
            f"{sorted(part.id for part in parts.values())}"
        ) from None
    pages = read_pages(tail, table, 0, 1, rows.values())
    counts = np.array([footer.num_batches], np.int64)
    plans = [
        open_field(FieldNode(part.arrow_field, pages[rows[part.id]]), counts, source.size).read(
            range(footer.num_batches)
        )
        for part in parts.values()
    ]
    values = dict(zip(parts, run_plans(source, plans), strict=True))
    unknown = pa.nulls(footer.num_batches, bounds[0])
    return PageStatistics(
        footer.bounds,
        values.get("null_count", pa.nulls(footer.num_batches, pa.int64())),
        values.get("min_value", unknown),
        values.get("max_value", unknown),
    )


def _may_match(statistics: PageStatistics, op: Op, value: Any) -> BoolArray:
    dtype = statistics.minimum.type
    with_nulls = _flags(pc.not_equal(statistics.null_count, 0))
    everything = np.ones(len(with_nulls), np.bool_)
    if op == "is_null":
        # Only strings are read as nulls, if they are empty.
        empty = _flags(pc.is_null(statistics.minimum))
        return with_nulls | empty if is_variable(dtype) else ~everything
    if op == "is_not_null":
        return everything
    if op not in ("==", "!=", "<", "<=", ">", ">="):
        raise InvalidInputError(f"operator {op!r} is not supported by page statistics")
    bounds = _values(value, dtype)
    if bounds is None or (pat.is_floating(dtype) and op in ("!=", ">", ">=")):
        # A batch may have NaN, which may be greater than all values.
        return everything
    low, high = statistics.minimum, statistics.maximum
    least, greatest = bounds
    may_match = everything
    if op in ("==", "<=", "<"):
        may_match = may_match & _flags((pc.less if op == "<" else pc.less_equal)(low, greatest))
    if op in ("==", ">=", ">"):
        reaches = _flags((pc.greater if op == ">" else pc.greater_equal)(high, least))
        may_match = may_match & (reaches | _may_be_cut(high, least))
    if op == "!=":
        all_equal = _flags(pc.equal(low, least), False) & _flags(pc.equal(high, least), False)
        may_match = (
            ~all_equal if not is_variable(dtype) or len(least.as_py()) < _CUT // 4 else everything
        )
    # The value that readers return for a null of the writer is unknown.
    return may_match | with_nulls


def _may_be_cut(high: pa.Array, value: pa.Scalar) -> BoolArray:
    """Return which batches may have a greater string than `high` says, and than `value`."""
    start = value.as_buffer().to_pybytes()[:_SHORTEST_CUT] if is_text(high.type) else b""
    if len(start) < _SHORTEST_CUT:
        return np.zeros(len(high), np.bool_)
    return _flags(pc.starts_with(high.cast(pa.large_binary()), pattern=start))


def _values(value: Any, dtype: pa.DataType) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return a value in the type of the field, rounded down and up; None if out of range."""
    try:
        scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
        exact = scalar if scalar.type == dtype else _cast(value, scalar, dtype)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    if not exact.is_valid:
        return None
    if not pat.is_floating(dtype):
        return exact, exact
    # The caller may compare in either precision.
    as_float = scalar.cast(pa.float64())
    pair = sorted([as_float.as_py(), exact.cast(pa.float64()).as_py()])
    if np.isnan(pair).any():
        return None
    return pa.scalar(pair[0], pa.float64()), pa.scalar(pair[1], pa.float64())


def _cast(value: Any, scalar: pa.Scalar, dtype: pa.DataType) -> pa.Scalar:
    """Return the same value in the type of the field; raise an error of Arrow or Python if the type
    cannot hold it.
    """
    if pat.is_floating(dtype) and (pat.is_floating(scalar.type) or pat.is_integer(scalar.type)):
        return scalar.cast(pa.float64()).cast(dtype, safe=False)
    if pat.is_decimal(dtype) and isinstance(value, int):
        return pa.scalar(Decimal(value), dtype)
    if is_variable(scalar.type) != is_variable(dtype):
        raise TypeError(f"{scalar.type} for {dtype}")
    result = scalar.cast(dtype)
    # Some casts cut silently: times of dates, for example.
    if not result.cast(scalar.type).equals(scalar):
        raise ValueError(f"{value!r} is not a {dtype}")
    return result


def _flags(array: pa.Array, unknown: bool = True) -> BoolArray:
    flags: BoolArray = pc.fill_null(array, unknown).to_numpy(zero_copy_only=False).astype(np.bool_)
    return flags


# --------------------------------------------------------------------------------------------------
# Collecting the statistics of a version 0.1 file; `statistics` documents their content and form.
#
# The rules are the same as in pylance, so that both write the same bounds, except for NaN:
#
# - Integers, dates and decimals: the least and the greatest value.
# - Floats: a least value of zero is -0.0, a greatest one 0.0. A column of a file that has a NaN has
#   no statistics at all. pylance writes bounds that leave NaN out, and then loses rows by them: ``f
#   >
#   3.0`` skips pages whose NaN it would find, and ``f <= 0.0`` takes the NaN of pages whose bounds
#   are not above 0.0.
# - Strings and bytes: of values of more than 64 bytes, a prefix of at most 64 bytes, whole
#   characters
#   of a string. If a page has such a value, its greatest value is raised by one in its last byte
# that   can be raised; if none can, the bound is null. A page of nulls has null bounds.
# - Strings and bytes of a page that has nulls, and one value besides: the greatest value is that
#   value with a zero byte after it. pylance writes the value itself. Where both bounds are one
# value,   it takes the nulls of the page for that value: ``s = 'b'`` finds them, ``s is null`` does
# not.
#
# pylance cuts strings before it compares them, which can leave a value above its bound where two
# strings differ in the characters that stand across byte 64. Here the greatest string is found
# first and then cut.

#: Maximum bytes of a bound of strings or byte strings.
MAX_BYTES = 64


@dataclass(slots=True)
class Collected:
    """The statistics of one field, batch by batch.

    - `minimums`, `maximums`: Bounds of the field's type.
    - `is_unknown`: Whether the field has a value without an order, such as NaN.
    """

    field: Field
    null_counts: list[Numbers] = dataclasses.field(default_factory=list)
    minimums: list[pa.Array] = dataclasses.field(default_factory=list)
    maximums: list[pa.Array] = dataclasses.field(default_factory=list)
    is_unknown: bool = False

    def add(self, array: pa.Array, cuts: Numbers) -> None:
        """Add the statistics of some batches, which are not empty.

        - `array`: Array of the type of the field; only strings and bytes may contain nulls.
        - `cuts`: First row of each batch, and the number of all rows.
        """
        has_nan = pat.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py()
        if self.is_unknown or has_nan:
            self.is_unknown = True
            return
        if is_variable(array.type):
            nulls, low, high = _of_strings(array, cuts)
        else:
            nulls = np.zeros(len(cuts) - 1, np.int64)
            low, high = _of_numbers(array, cuts)
        self.null_counts.append(nulls)
        self.minimums.append(low)
        self.maximums.append(high)

    def to_arrow(self) -> tuple[pa.Field, pa.StructArray]:
        """Return the field's column in the table of statistics."""
        dtype = self.minimums[0].type
        fields = [
            pa.field("null_count", pa.int64(), nullable=False),
            pa.field("min_value", dtype),
            pa.field("max_value", dtype),
        ]
        arrays = [
            pa.array(np.concatenate(self.null_counts)),
            pa.concat_arrays(self.minimums),
            pa.concat_arrays(self.maximums),
        ]
        column = pa.StructArray.from_arrays(arrays, fields=fields)
        return pa.field(str(self.field.id), column.type, nullable=False), column


class StatisticsCollector:
    """Collects the statistics of all fields that have some, at the top and in structs, in the order
    of their ids.

    - `fields`: The top-level fields of the file.
    """

    def __init__(self, fields: tuple[Field, ...]) -> None:
        self._columns = [_with_statistics(field) for field in fields]

    def add(self, column: int, array: pa.Array, cuts: Numbers) -> None:
        """Add the statistics of some batches of a top-level field; see `Collected.add`."""
        for path, collected in self._columns[column]:
            inner = array
            for position in path:
                inner = inner.field(position)
            collected.add(inner, cuts)

    def to_arrow(self) -> tuple[pa.Schema, list[pa.StructArray]] | None:
        """Return the table of statistics; None if no field has any, or no batch was added."""
        every = [collected for column in self._columns for _, collected in column]
        every = sorted(
            (item for item in every if item.null_counts and not item.is_unknown),
            key=lambda item: item.field.id,
        )
        if not every:
            return None
        fields, arrays = zip(*(item.to_arrow() for item in every), strict=True)
        return pa.schema(fields), list(arrays)


def _with_statistics(field: Field) -> list[tuple[tuple[int, ...], Collected]]:
    def visit(node: Field, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Collected]]:
        # pylance would compare the bytes of JSONB, which have no order.
        if node.logical_type == "json":
            return
        dtype = node.arrow_field.type
        if pat.is_struct(dtype):
            for index, child in enumerate(node.children):
                yield from visit(child, (*path, index))
        elif _is_compared(dtype):
            yield path, Collected(node)

    return list(visit(field, ()))


def _is_compared(dtype: pa.DataType) -> bool:
    return bool(
        pat.is_boolean(dtype)
        or pat.is_integer(dtype)
        or pat.is_float32(dtype)
        or pat.is_float64(dtype)
        or pat.is_date(dtype)
        or pat.is_decimal128(dtype)
        or is_variable(dtype)
    )


def _of_numbers(array: pa.Array, cuts: Numbers) -> tuple[pa.Array, pa.Array]:
    dtype, starts = array.type, cuts[:-1]
    data = np.frombuffer(array.buffers()[1], np.uint8)
    if pat.is_boolean(dtype):
        flags = flags_of(data, array.offset, len(array))
        bounds = (np.logical_and.reduceat(flags, starts), np.logical_or.reduceat(flags, starts))
        return pa.array(bounds[0]), pa.array(bounds[1])
    width = dtype.bit_width // 8
    data = data[array.offset * width : (array.offset + len(array)) * width]
    if pat.is_decimal128(dtype):
        return _of_decimals(data, dtype, cuts)
    if pat.is_floating(dtype):
        return _of_floats(data.view(f"<f{width}"), dtype, starts)
    values = data.view(f"<{'u' if pat.is_unsigned_integer(dtype) else 'i'}{width}")
    return (
        _from_numpy(np.minimum.reduceat(values, starts), dtype),
        _from_numpy(np.maximum.reduceat(values, starts), dtype),
    )


def _of_floats(
    values: np.ndarray[tuple[int], np.dtype[np.floating]], dtype: pa.DataType, starts: Numbers
) -> tuple[pa.Array, pa.Array]:
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    low[low == 0] = -0.0
    high[high == 0] = 0.0
    return _from_numpy(low, dtype), _from_numpy(high, dtype)


def _of_decimals(
    data: np.ndarray[tuple[int], np.dtype[np.uint8]], dtype: pa.DataType, cuts: Numbers
) -> tuple[pa.Array, pa.Array]:
    """Compare numbers of 128 bits by their upper halves, then by their lower halves."""
    upper, lower = data.view("<i8")[1::2], data.view("<u8")[::2]
    starts, sizes = cuts[:-1], np.diff(cuts)
    bounds = []
    for compare, last in ((np.minimum, np.iinfo(np.uint64).max), (np.maximum, 0)):
        high = compare.reduceat(upper, starts)
        candidates = np.where(upper == np.repeat(high, sizes), lower, np.uint64(last))
        pair = np.empty((len(sizes), 2), "<u8")
        pair[:, 0] = compare.reduceat(candidates, starts)
        pair[:, 1] = high.view("<u8")
        bounds.append(_from_numpy(pair, dtype))
    return bounds[0], bounds[1]


def _from_numpy(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]], dtype: pa.DataType
) -> pa.Array:
    return pa.Array.from_buffers(dtype, len(values), [None, pa.py_buffer(values)])


def _of_strings(array: pa.Array, cuts: Numbers) -> tuple[Numbers, pa.Array, pa.Array]:
    is_string = is_text(array.type)
    # Compared as bytes: the order of strings is the same, and no string has to be decoded.
    values = array.cast(pa.large_binary()) if is_string else array
    lengths = pc.binary_length(values)
    nulls = np.zeros(len(cuts) - 1, np.int64)
    lows: list[bytes | None] = []
    highs: list[bytes | None] = []
    for page, start in enumerate(cuts[:-1].tolist()):
        part = values.slice(start, int(cuts[page + 1]) - start)
        nulls[page] = part.null_count
        bounds = pc.min_max(part)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        longest = pc.max(lengths.slice(start, len(part))).as_py() or 0
        lows.append(None if low is None else _cut(low, is_string))
        if high is not None and longest > MAX_BYTES:
            high = _raised(_cut(high, is_string), is_string)
        elif high is not None and low == high and part.null_count:
            high = _above(high, is_string)
        highs.append(high)
    return nulls, _strings(lows, array.type), _strings(highs, array.type)


def _strings(values: list[bytes | None], dtype: pa.DataType) -> pa.Array:
    return pa.array(values, pa.large_binary()).cast(dtype)


def _cut(value: bytes, is_text: bool) -> bytes:
    if len(value) <= MAX_BYTES:
        return value
    cut = value[:MAX_BYTES]
    # An incomplete character at the end is dropped.
    return cut.decode(errors="ignore").encode() if is_text else cut


def _above(value: bytes, is_text: bool) -> bytes | None:
    """Return a value of at most `MAX_BYTES` that is greater than `value`, or None."""
    return value + b"\0" if len(value) < MAX_BYTES else _raised(value, is_text)


def _raised(value: bytes, is_text: bool) -> bytes | None:
    """Return a value of this length that is greater than all values that begin with `value`, or
    None.
    """
    if not is_text:
        # Arithmetic on the whole value: a byte of 255 becomes 0 and raises the previous byte.
        number = int.from_bytes(value) + 1
        return None if number >> (8 * len(value)) else number.to_bytes(len(value))
    for position in reversed(range(len(value))):
        for byte in range(value[position] + 1, 256):
            raised = value[:position] + bytes([byte]) + value[position + 1 :]
            try:
                raised.decode()
            except UnicodeDecodeError:
                continue
            return raised
    return None
