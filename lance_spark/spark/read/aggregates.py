"""Aggregates that Spark pushes down: counts, sums, minima and maxima.

Each partition returns rows of aggregates (`group_by`), and Spark merges the rows.

| without filters | taken from |
| --- | --- |
| counts of rows, and of columns that are not nullable | the manifest |
| minima, maxima and other counts | indexes that know them exactly |

All others are computed from the values that Spark would get. Only the columns of the aggregates are
read, and for counts only their pages with nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat
from pyspark.sql import types as spark

from lance_spark.encoding.blocks import (
    decimal_words,
    from_decimal_words,
    from_unscaled,
    is_short_decimal,
    unscaled_if_short,
)
from lance_spark.errors import LanceError, SchemaMismatchError
from lance_spark.predicates.comparison import column_at
from lance_spark.spark.pushdown.request import Aggregate, PushedScan, refused
from lance_spark.spark.read.projection import find, missing_column
from lance_spark.spark.types.mapping import to_spark_type

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.indexes.aggregates import MinMax
    from lance_spark.scan.task import ScanTask


def needed_columns(
    paths: Iterable[tuple[str, ...]], schema: pa.Schema, table: str
) -> spark.StructType:
    """Return the columns of aggregates. Structs have no other children than those.

    - `schema`: All columns that can be read.
    - `table`: What to call the table in errors.

    Raises SchemaMismatchError: the table has no such column any more. Raises UnsupportedError: a
    column is not a struct.
    """
    # Maps names to the tree of their children, or to None for a whole column.
    tree: dict[str, Any] = {}
    for path in paths:
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if node is None:
                break
        else:
            if path:
                node[path[-1]] = None
    return _narrowed(list(schema), tree, (), table)


def _narrowed(
    fields: Sequence[pa.Field], tree: dict[str, Any], parent: tuple[str, ...], table: str
) -> spark.StructType:
    narrowed = []
    for name, children in tree.items():
        names = [field.name for field in fields]
        index = find(names, name)
        path = (*parent, name)
        if index < 0:
            raise SchemaMismatchError(missing_column(".".join(path), name, names, table))
        dtype: Any = fields[index].type
        if children is not None and not pa.types.is_struct(dtype):
            raise refused("the column is not a struct", ".".join(path))
        data_type: spark.DataType = (
            to_spark_type(dtype, ".".join(path))
            if children is None
            else _narrowed([dtype.field(i) for i in range(dtype.num_fields)], children, path, table)
        )
        narrowed.append(spark.StructField(name, data_type, fields[index].nullable))
    return spark.StructType(narrowed)


def check_types(request: PushedScan, columns: spark.StructType, output: spark.StructType) -> None:
    """Refuse groups and aggregates whose columns have other types than Spark takes them for.

    A user's schema, or a DataFrame that was made before another client replaced a column, may name
    another type. The smallest string is not the smallest number.

    - `columns`: The result of `needed_columns`.
    - `output`: A field for each group and then for each aggregate.

    Raises SchemaMismatchError: as for rows with these types.
    """
    from lance_spark.spark.types.convert import check_conversion
    from lance_spark.spark.types.mapping import batch_schema

    known, wanted = batch_schema(columns), batch_schema(output)
    groups = [Aggregate("min", path) for path in request.groups]
    for aggregate, field in zip((*groups, *request.aggregates), wanted, strict=True):
        along_path = _fields_at(known, aggregate.path)
        if aggregate.op.startswith("count") or not along_path:
            continue
        dtype = along_path[-1].type
        if aggregate.op == "sum":
            dtype = _sum_type(dtype)
        name = ".".join(aggregate.path)
        source = pa.schema([pa.field(name, dtype)])
        check_conversion(source, pa.schema([pa.field(name, field.type)]), reading=True)


def _sum_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of Spark's sum of a type that `GroupedRows` adds up."""
    if pa.types.is_integer(dtype):
        return pa.int64()
    if pa.types.is_decimal128(dtype):
        return pa.decimal128(min(dtype.precision + 10, 38), dtype.scale)
    return dtype


def known_values(
    aggregates: Iterable[Aggregate], dataset: Dataset, schema: pa.Schema
) -> list[pa.Array] | None:
    """Return the values of aggregates over all rows from the manifest and from indexes.

    - `schema`: All columns that can be read.

    Returns an array of length 1 for each aggregate; None if a value is not known without reading
    rows.
    """
    values = []
    bounds: dict[tuple[str, ...], MinMax | None] = {}
    for aggregate in aggregates:
        value = _known_value(aggregate, dataset, schema, bounds)
        if value is None:
            return None
        values.append(value)
    return values


def _known_value(
    aggregate: Aggregate,
    dataset: Dataset,
    schema: pa.Schema,
    bounds: dict[tuple[str, ...], MinMax | None],
) -> pa.Array | None:
    if aggregate.op == "sum":
        return None
    if aggregate.op == "count_star":
        return pa.array([dataset.count_rows()], pa.int64())
    fields = _fields_at(schema, aggregate.path)
    if fields is None or (aggregate.op != "count" and pat.is_floating(fields[-1].type)):
        # Indexes do not know whether NaN, the greatest value, is among the values of a column.
        return None
    if aggregate.op == "count" and not any(field.nullable for field in fields):
        return pa.array([dataset.count_rows()], pa.int64())
    from lance_spark.indexes.aggregates import min_max_from_metadata, value_count

    path = tuple(field.name for field in fields)
    try:
        if aggregate.op == "count":
            count = value_count(dataset._table, dataset.fragments, path)
            return None if count is None else pa.array([count], pa.int64())
        if path not in bounds:
            # One call returns both the minimum and the maximum.
            bounds[path] = min_max_from_metadata(dataset._table, dataset.fragments, path)
    except LanceError:
        # The rows can be read without the index that cannot be read.
        return None
    min_max = bounds[path]
    return None if min_max is None else _for_spark(min_max[aggregate.op == "max"], fields[-1])


def _fields_at(schema: pa.Schema, path: Sequence[str]) -> list[pa.Field] | None:
    """Return the fields along a path, from the column to the last child; None if not found."""
    along_path: list[pa.Field] = []
    fields = list(schema)
    for name in path:
        index = find([field.name for field in fields], name)
        if index < 0:
            return None
        field = fields[index]
        along_path.append(field)
        dtype = field.type
        is_struct = pa.types.is_struct(dtype)
        fields = [dtype.field(i) for i in range(dtype.num_fields)] if is_struct else []
    return along_path


def _for_spark(value: pa.Scalar, field: pa.Field) -> pa.Array | None:
    """Return a value of a column as Spark gets it, in an array of length 1."""
    from lance_spark.spark.types.convert import BatchConverter
    from lance_spark.spark.types.mapping import batch_schema, to_spark_schema

    schema = pa.schema([field.with_nullable(True)])
    values = pa.array([value], value.type)
    if values.type != field.type:
        return None
    convert = BatchConverter(schema, batch_schema(to_spark_schema(schema)), reading=True)
    (batch,) = convert(pa.RecordBatch.from_arrays([values], schema=schema))
    return batch.column(0)


def split_counted(aggregates: Sequence[Aggregate], task: ScanTask) -> tuple[int, ScanTask]:
    """Split a task without filters into rows that are counted without reading, and the others.

    Rows are counted only if all aggregates count them alike, as counts of one column do.

    Returns
    -------
    int
        The number of rows that need not be read.
    ScanTask
        The other rows, which may be none.
    """
    paths = {aggregate.path for aggregate in aggregates if aggregate.op != "count_star"}
    counts_only = all(aggregate.op in ("count_star", "count") for aggregate in aggregates)
    if len(paths) != 1 or not counts_only:
        return 0, task
    fields = _fields_at(task.schema, *paths)
    if fields is None:
        return 0, task
    from lance_spark.indexes.aggregates import split_valid

    return split_valid(task, [field.name for field in fields])


def row_of(arrays: Sequence[pa.Array | None], output: pa.Schema) -> pa.RecordBatch:
    """Return a row of values, which are arrays of length 1, or None for null."""
    columns = [
        pa.nulls(1, field.type) if array is None else array.cast(field.type)
        for array, field in zip(arrays, output, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=output)


# --------------------------------------------------------------------------------------------------
# Aggregates by groups: what a task returns of its rows, for Spark to merge.
#
# A task returns a row for each group. It may return a group several times: if the task has more
# groups than it keeps in memory, and if a sum does not fit the type in which Spark adds up the sums
# of tasks. Without groups, all rows are one group.
#
# | aggregate | computed for each batch |
# | --- | --- |
# | counts, minima, maxima | by Arrow's kernels: strings are ordered by their bytes, as Spark's;
#     floats as integers of the same order |
# | sums of integers and decimals | of 64 bits if no sum of the batch overflows, and else of limbs
#     of 32 bits; between batches of limbs |

#: Groups that a task keeps in memory.
_MAX_GROUPS = 65_536
#: Bytes of them: keys and extremes can be long strings.
_MAX_BYTES = 64 * 1024 * 1024
_LIMB_BITS = 32
_LIMB_MASK = (1 << _LIMB_BITS) - 1
_MAX_LONG = 2**63 - 1
#: Limbs of a sum of integers of 64 bits, and of wider ones.
_LIMBS, _WIDE_LIMBS = 2, 4

Longs = npt.NDArray[np.int64]


#: Number of groups, and their bytes.
_Size = tuple[int, int]


def _size(groups: pa.Table) -> _Size:
    return groups.num_rows, groups.nbytes


def _is_large(sizes: Iterable[_Size]) -> bool:
    rows, size = map(sum, zip(*sizes, strict=True))
    return rows > _MAX_GROUPS or size > _MAX_BYTES


class GroupedRows:
    """Aggregates batches.

    - `groups`: Paths of the columns whose values make a group.
    - `output`: Columns of the groups, then of the aggregates.
    - `columns`: Of the batches, in which strings may be dictionary arrays, and decimals their
      unscaled values.
    """

    def __init__(
        self,
        groups: Sequence[tuple[str, ...]],
        aggregates: Sequence[Aggregate],
        output: pa.Schema,
        columns: pa.Schema,
    ) -> None:
        self._groups = groups
        self._output = output
        self._keys = [f"key {number}" for number in range(len(groups))]
        self._key_types = [_type_at(columns, path) for path in groups]
        self._columns = [
            _AggregateColumn(f"value {number}", aggregate, _type_at(columns, aggregate.path))
            for number, aggregate in enumerate(aggregates)
        ]

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of aggregates. Without groups, no rows have a row of aggregates too."""
        parts: list[pa.Table] = []
        sizes: list[_Size] = []
        for batch in batches:
            if not batch.num_rows:
                continue
            parts.append(self._aggregated(batch))
            sizes.append(_size(parts[-1]))
            if _is_large(sizes):
                parts = [self._merged(pa.concat_tables(parts))]
                sizes = [_size(parts[0])]
                if _is_large(sizes):
                    yield from self._finished(parts[0])
                    parts, sizes = [], []
        if parts:
            yield from self._finished(self._merged(pa.concat_tables(parts)))
        elif not self._groups:
            yield self._batch([], [column.nothing(1) for column in self._columns])

    def _aggregated(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the partial results of a batch."""
        columns: dict[str, pa.Array] = {"": pa.nulls(batch.num_rows)}
        dictionaries: dict[str, pa.Array] = {}
        for name, path in zip(self._keys, self._groups, strict=True):
            key = column_at(batch, path)
            if pat.is_dictionary(key.type):
                # Arrow does not group by dictionaries. Equal values may have several indices.
                dictionaries[name] = key.dictionary
                key = key.indices
            columns[name] = key
        functions: list[_Function] = []
        for column in self._columns:
            parts, added = column.inputs(batch)
            columns |= parts
            functions += added
        grouped = self._grouped(pa.table(columns), functions)
        arrays: dict[str, pa.Array] = {}
        for name, dtype in zip(self._keys, self._key_types, strict=True):
            key = grouped[name]
            if name in dictionaries:
                key = dictionaries[name].take(key)
            arrays[name] = _with_scale(key, dtype)
        for column in self._columns:
            column.partial(grouped, arrays)
        return pa.table(arrays)

    def _merged(self, table: pa.Table) -> pa.Table:
        functions = [item for column in self._columns for item in column.merging()]
        arrays = self._grouped(table, functions)
        for column in self._columns:
            column.carry(arrays)
        return pa.table(arrays)

    def _grouped(self, table: pa.Table, functions: list[_Function]) -> dict[str, pa.Array]:
        """Return the groups of a table, and results under the names that functions give them."""
        calls = [(column, name) for _, column, name in functions]
        grouped = table.group_by(self._keys, use_threads=False).aggregate(calls)
        arrays = {name: grouped.column(name).combine_chunks() for name in self._keys}
        # Two counts of rows have the same name.
        results = [
            result.combine_chunks()
            for name, result in zip(grouped.column_names, grouped.columns, strict=True)
            if name not in self._keys
        ]
        arrays.update(zip([name for name, _, _ in functions], results, strict=True))
        return arrays

    def _finished(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        arrays = {name: table.column(name).combine_chunks() for name in table.column_names}
        keys = [arrays[name] for name in self._keys]
        values, rest = [], []
        for index, column in enumerate(self._columns):
            array, parts = column.finished(arrays, self._output.field(len(keys) + index))
            values.append(array)
            rest += [(index, *part) for part in parts]
        yield self._batch(keys, values)
        for index, rows, array in rest:
            others = [column.nothing(len(rows)) for column in self._columns]
            others[index] = array
            yield self._batch([key.take(rows) for key in keys], others)

    def _batch(self, keys: list[pa.Array], values: Sequence[pa.Array]) -> pa.RecordBatch:
        arrays = [
            array.cast(field.type)
            for array, field in zip([*keys, *values], self._output, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._output)


def _type_at(columns: pa.Schema, path: Sequence[str]) -> pa.DataType | None:
    """Return the type of a column or of a child of structs; None without a path."""
    fields = _fields_at(columns, path)
    return fields[-1].type if fields else None


def _with_scale(array: pa.Array, dtype: pa.DataType | None) -> pa.Array:
    """Return values of a type: decimals if they are unscaled ones."""
    is_unscaled = pat.is_int64(array.type) and dtype is not None and pat.is_decimal(dtype)
    return from_unscaled(array, dtype) if is_unscaled else array


#: The name of a result, the name of a column, and Arrow's function of it.
_Function = tuple[str, Any, str]


class _AggregateColumn:
    """One aggregate: the columns that Arrow computes for it, and its values.

    - `dtype`: Of the column that is aggregated; None for counts of rows.
    """

    def __init__(self, name: str, aggregate: Aggregate, dtype: pa.DataType | None) -> None:
        self._name = name
        self._aggregate = aggregate
        self._type = dtype
        is_exact = dtype is not None and not pat.is_floating(dtype)
        self._is_split = aggregate.op == "sum" and is_exact
        self._is_extreme = aggregate.op in ("min", "max")
        count = _LIMBS
        if self._is_split and pat.is_decimal(dtype) and not is_short_decimal(dtype):
            count = _WIDE_LIMBS
        #: Names of the limbs of a sum, the lowest first. The highest has the sign.
        self._limbs = [f"{name} limb {number}" for number in range(count)]

    def inputs(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.Array], list[_Function]]:
        """Return the columns to aggregate in a batch, and functions of them."""
        name, op = self._name, self._aggregate.op
        if op == "count_star":
            return {}, [(name, [], "count_all")]
        values = column_at(batch, self._aggregate.path)
        if op == "count":
            if not values.null_count:
                return {}, [(name, [], "count_all")]
            return {name: values.is_valid().cast(pa.int64())}, [(name, name, "sum")]
        if self._is_split:
            return self._summed(values)
        if pat.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pat.is_floating(values.type) and op != "sum":
            values = _ordered(values)
        return {name: values}, [(name, name, op)]

    def _summed(self, values: pa.Array) -> tuple[dict[str, pa.Array], list[_Function]]:
        """Return what is to be added up: 64 bits of each value, or its limbs."""
        is_decimal = pat.is_decimal(values.type)
        longs = unscaled_if_short(values) if is_decimal else values.cast(pa.int64())
        if longs is None:
            words, mask = decimal_words(values), _nulls(values)
            low, high = words[:, 0], words[:, 1]
            limbs = [
                pa.array(limb, pa.int64(), mask=mask)
                for limb in (
                    low & _LIMB_MASK,
                    low >> _LIMB_BITS & _LIMB_MASK,
                    high & _LIMB_MASK,
                    high >> _LIMB_BITS,
                )
            ]
            return self._as_limbs(limbs)
        ends = pc.min_max(longs)
        bound = max(abs(end.as_py() or 0) for end in (ends["min"], ends["max"]))
        if bound * len(longs) <= _MAX_LONG:
            return {self._name: longs}, [(self._name, self._name, "sum")]
        low_limb = pc.bit_wise_and(longs, pa.scalar(_LIMB_MASK, pa.int64()))
        return self._as_limbs([low_limb, pc.shift_right(longs, _LIMB_BITS)])

    def _as_limbs(self, limbs: list[pa.Array]) -> tuple[dict[str, pa.Array], list[_Function]]:
        columns = dict(zip(self._limbs, limbs, strict=False))
        return columns, [(name, name, "sum") for name in columns]

    def partial(self, grouped: dict[str, pa.Array], arrays: dict[str, pa.Array]) -> None:
        """Add the partial results of a batch to those of other columns."""
        if not self._is_split:
            dtype = None if self._aggregate.op.startswith("count") else self._type
            arrays[self._name] = _with_scale(grouped[self._name], dtype)
            return
        summed = [grouped[name] for name in (self._name, *self._limbs) if name in grouped]
        null = _nulls(summed[0])
        parts = [array.fill_null(0).to_numpy() for array in summed]
        # Limbs above those of the batch continue its sign.
        parts += [np.zeros_like(parts[0])] * (len(self._limbs) - len(parts))
        self._put(arrays, parts, null)

    def _put(
        self,
        arrays: dict[str, pa.Array],
        limbs: list[Longs],
        null: npt.NDArray[np.bool_] | None,
    ) -> None:
        """Put limbs of 32 bits in place of larger ones, which move what they have above 32 bits to
        the next limb.
        """
        carried: Longs | int = 0
        for name, limb in zip(self._limbs, limbs, strict=True):
            total = limb + carried
            carried = total >> _LIMB_BITS
            kept = total if name == self._limbs[-1] else total & _LIMB_MASK
            arrays[name] = pa.array(kept, pa.int64(), mask=null)

    def merging(self) -> list[_Function]:
        """Return the functions that merge partial results."""
        if self._is_split:
            return [(name, name, "sum") for name in self._limbs]
        op = self._aggregate.op
        return [(self._name, self._name, op if op in ("min", "max") else "sum")]

    def carry(self, arrays: dict[str, pa.Array]) -> None:
        """Move what sums of limbs have above 32 bits to the next limb."""
        if self._is_split:
            summed = [arrays[name] for name in self._limbs]
            parts = [array.fill_null(0).to_numpy() for array in summed]
            self._put(arrays, parts, _nulls(summed[0]))

    def nothing(self, num_rows: int) -> pa.Array:
        """Return values that change no aggregate that they are merged into."""
        if self._aggregate.op.startswith("count"):
            return pa.repeat(pa.scalar(0, pa.int64()), num_rows)
        return pa.nulls(num_rows)

    def finished(
        self, arrays: dict[str, pa.Array], output: pa.Field
    ) -> tuple[pa.Array, list[tuple[pa.Array, pa.Array]]]:
        """Return the values of the groups, and parts of sums that are rows of their own.

        Spark casts a sum to the type of the column before it adds it up. The sum of integers may be
        wanted as a double, for an average.

        Returns
        -------
        pyarrow.Array
        list of (pyarrow.Array, pyarrow.Array)
            Indices of groups, and what is to be added to their sums.
        """
        if not self._is_split:
            array = arrays[self._name]
            is_float = self._type is not None and pat.is_floating(self._type)
            return _floats(array, output.type) if is_float and self._is_extreme else array, []
        null = arrays[self._limbs[0]].is_null().to_numpy(zero_copy_only=False)
        low, high, *wide = (arrays[name].fill_null(0).to_numpy() for name in self._limbs)
        if pat.is_floating(output.type):
            # Rounded once: the high limb has fewer digits than a double.
            return pa.array(high * 2.0**_LIMB_BITS + low, mask=null), []
        assert self._type is not None
        is_decimal = pat.is_decimal(self._type)
        limit = 10**self._type.precision - 1 if is_decimal else _MAX_LONG
        words = np.empty((len(low), 2), np.int64)
        words[:, 0] = low | high << _LIMB_BITS
        words[:, 1] = wide[0] | wide[1] << _LIMB_BITS if wide else high >> _LIMB_BITS
        if wide:
            most = limit >> _LIMB_BITS * 3
            is_long = (words[:, 1] == words[:, 0] >> 63) & (wide[1] == wide[1] << 32 >> 32)
            suspects = ~is_long & ((wide[1] >= most) | (wide[1] < -most))
        else:
            sums = words[:, 0]
            suspects = (words[:, 1] != sums >> 63) | (sums > limit) | (sums < -limit)
        rest = []
        for index in np.flatnonzero(suspects & ~null).tolist():
            total = sum(
                int(arrays[name][index].as_py()) << _LIMB_BITS * place
                for place, name in enumerate(self._limbs)
            )
            if abs(total) > limit:
                parts = _parts(total, limit)
                words[index] = parts[-1]
                rest.append((index, parts[:-1]))
        return (
            self._of_words(words, null),
            [
                (pa.array(np.full(len(parts), index)), self._of_words(parts))
                for index, parts in rest
            ],
        )

    def _of_words(
        self, words: npt.NDArray[np.int64], null: npt.NDArray[np.bool_] | None = None
    ) -> pa.Array:
        """Return sums of a low and a high half each: decimals, or integers, whose high half is
        their sign.
        """
        if pat.is_decimal(self._type):
            return from_decimal_words(words, self._type, null)
        return pa.array(np.ascontiguousarray(words[:, 0]), pa.int64(), mask=null)


def _ordered(array: pa.Array) -> pa.Array:
    """Return integers in the order of floats: NaN is the greatest value, as Spark has it."""
    wide = pat.is_float64(array.type)
    dtype = pa.int64() if wide else pa.int32()
    array = array.cast(pa.float64() if wide else pa.float32())
    values = array.fill_null(0).to_numpy(zero_copy_only=False)
    numbers = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    bits = _reordered(numbers.view(np.int64 if wide else np.int32))
    return pa.array(bits, dtype, mask=_nulls(array))


def _floats(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    """Return the floats of integers in their order."""
    bits = _reordered(array.fill_null(0).to_numpy(zero_copy_only=False))
    values = bits.view(np.float64 if pat.is_float64(dtype) else np.float32)
    return pa.array(values, dtype, mask=_nulls(array))


def _nulls(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    nulls: npt.NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return nulls if array.null_count else None


def _reordered(bits: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the bits of floats in the order of integers, or back: those of negative floats grow
    with their distance from 0.
    """
    most: Any = np.iinfo(bits.dtype).max
    return np.where(bits < 0, np.bitwise_xor(bits, most), bits)


def _parts(total: int, limit: int) -> Longs:
    """Split a sum into numbers within a limit: their low and high halves, the smallest last."""
    sign = -1 if total < 0 else 1
    count, rest = divmod(abs(total), limit)
    parts = np.empty((count + 1, 2), np.int64)
    for rows, number in ((slice(count), sign * limit), (slice(count, None), sign * rest)):
        low = number & (1 << 64) - 1
        parts[rows] = low - (1 << 64) if low >= 1 << 63 else low, number >> 64
    return parts


def merged_on_driver(
    groups: Sequence[tuple[str, ...]],
    aggregates: Sequence[Aggregate],
    output: pa.Schema,
    rows: Iterable[pa.RecordBatch],
) -> list[pa.RecordBatch]:
    """Return one row for each group, from the rows of all partitions.

    Raises pyarrow.ArrowInvalid: a sum does not fit its type.
    """
    keys = [(name,) for name in output.names[: len(groups)]]
    merging = [
        Aggregate(aggregate.op if aggregate.op in ("min", "max") else "sum", (name,))
        for aggregate, name in zip(aggregates, output.names[len(groups) :], strict=True)
    ]
    batches = list(GroupedRows(keys, merging, output, output).rows(rows))
    if len(batches) > 1:
        raise pa.ArrowInvalid("a sum does not fit its type")
    return batches
