"""Which shard a row belongs to: the values of sharding fields, computed from columns.

| transform | value | columns |
| --- | --- | --- |
| `unsharded` | int32 0 | none |
| `bucket` | int32, `(hash & 0x7fffffff) mod num_buckets`; 0 for null | one of many types |
| `identity` | the value of the column | one of booleans, integers or strings |

The hash is Murmur3 with the seed 0 (`encoding/murmur3`). Numbers and dates of up to 4 bytes are
hashed as 4 bytes, others as 8; floating-point numbers by their bits, with one zero and one NaN;
strings by their UTF-8. Specification: table/mem_wal.md.

Nothing in a table says which UUID the shard of a value has. This package derives the UUID from the
sharding spec and the values, so that all its writers find the same shard.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from lance_spark.encoding.murmur3 import hash_bytes, hash_numbers
from lance_spark.errors import InvalidInputError, UnsupportedError, UnsupportedTypeError
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.table.details import ShardingField, ShardingSpec, decode, find_index
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.open import OpenTable

#: Most buckets of a MemWAL.
MAX_BUCKETS = 1024
NUM_BUCKETS = "num_buckets"
BUCKET, IDENTITY, UNSHARDED = "bucket", "identity", "unsharded"
#: Of the UUIDs of shards. Chosen once.
_NAMESPACE = uuid.UUID("6f1d9c52-6c0f-5d0e-8f43-6a1b7c0f2a91")
_FOUR_BYTES = (
    pat.is_boolean,
    pat.is_int8,
    pat.is_int16,
    pat.is_int32,
    pat.is_date32,
    pat.is_time32,
)
_UNSIGNED = (pat.is_uint8, pat.is_uint16, pat.is_uint32)
_EIGHT_BYTES = (pat.is_int64, pat.is_uint64, pat.is_timestamp, pat.is_time64)
_TEXT = (pat.is_string, pat.is_large_string)
_FLOATS = (pat.is_float32, pat.is_float64)

FieldEntries = tuple[tuple[str, bytes], ...]


class ShardRows(NamedTuple):
    """The rows of a table that belong to one shard.

    - `entries` (tuple of (str, bytes)): The values of the sharding fields, as shard manifests have
      them.
    - `rows`: In their order.
    """

    shard: uuid.UUID
    entries: FieldEntries
    rows: pa.Table


def evaluate_sharding_spec(
    batch: pa.RecordBatch | pa.Table,
    spec: ShardingSpec | Mapping[str, Any],
    schema: Schema,
) -> pa.RecordBatch:
    """Compute the values of sharding fields.

    Parameters
    ----------
    batch : pyarrow.RecordBatch or pyarrow.Table
        Rows with the columns that the spec uses.
    spec : ShardingSpec or mapping
        A mapping has the form of the values of `Dataset.mem_wal_index_details`.
    schema : Schema
        Of the table, whose field ids the spec has.

    Returns
    -------
    pyarrow.RecordBatch
        One column for each sharding field, with its name.

    Raises
    ------
    InvalidInputError
        The spec or the rows lack a column or a parameter.
    UnsupportedError
        The transform is unknown, or not defined for the type of the column.
    """
    spec = as_spec(spec)
    if not spec.fields:
        raise InvalidInputError("the sharding spec has no fields; give it one at least")
    columns = [_values(part, batch, schema) for part in spec.fields]
    names = [part.field_id for part in spec.fields]
    fields = [
        pa.field(name, column.type, nullable=bool(column.null_count))
        for name, column in zip(names, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def split_by_shard(spec: ShardingSpec, schema: Schema, rows: pa.Table) -> list[ShardRows]:
    """Split rows by the shard that they belong to.

    Shards without rows are left out. Raises UnsupportedError. Raises InvalidInputError: a
    value that selects a shard is null.
    """
    if not rows.num_rows:
        return []
    values = evaluate_sharding_spec(rows, spec, schema)
    for name, column in zip(values.schema.names, values.columns, strict=True):
        if column.null_count:
            raise InvalidInputError(
                f"{column.null_count} rows have null as sharding field {name!r}, so that they "
                "belong to no shard; give them a value in the columns of the sharding"
            )
    # The names of sharding fields need not be different.
    names = [str(number) for number in range(values.num_columns)]
    keys = pa.table([*values.columns, pa.array(np.arange(len(values)))], [*names, "row"])
    groups = keys.group_by(names, use_threads=False).aggregate([("row", "list")])
    result = []
    for number in range(groups.num_rows):
        entries = tuple(
            (part.field_id, entry_bytes(groups[name][number]))
            for name, part in zip(names, spec.fields, strict=True)
        )
        chosen = rows.take(groups["row_list"][number].values)
        result.append(ShardRows(shard_uuid(spec, entries), entries, chosen))
    return result


def bucket_entries(spec: ShardingSpec, number: int) -> FieldEntries:
    """Return the entries of a bucket, or of the only shard of an unsharded table."""
    return ((spec.fields[0].field_id, entry_bytes(pa.scalar(number, pa.int32()))),)


def entry_bytes(value: pa.Scalar) -> bytes:
    """Return the bytes of a value in a shard manifest: little-endian, or UTF-8."""
    if any(test(value.type) for test in _TEXT):
        return str(value.as_py()).encode()
    number = np.asarray(value.as_py(), value.type.to_pandas_dtype())
    return number.astype(number.dtype.newbyteorder("<")).tobytes()


def entry_value(data: bytes, dtype: pa.DataType) -> Any:
    """Return the value whose bytes a shard manifest has; None if they are of another type."""
    if any(test(dtype) for test in _TEXT):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None
    if len(data) != np.dtype(dtype.to_pandas_dtype()).itemsize:
        return None
    if pat.is_boolean(dtype):
        return data != b"\0"
    return int.from_bytes(data, "little", signed=pat.is_signed_integer(dtype))


def shard_uuid(spec: ShardingSpec, entries: FieldEntries) -> uuid.UUID:
    """Return the UUID of the shard of values, which depends on all parts of the spec."""
    parts = [str(spec.spec_id)]
    for part, (name, value) in zip(spec.fields, entries, strict=True):
        parameters = ",".join(f"{key}={part.parameters[key]}" for key in sorted(part.parameters))
        sources = ",".join(map(str, part.source_ids))
        parts.append(f"{name}={part.transform}({sources};{parameters}):{value.hex()}")
    return uuid.uuid5(_NAMESPACE, "/".join(parts))


def as_spec(spec: ShardingSpec | Mapping[str, Any]) -> ShardingSpec:
    """Return a spec from the form that `Dataset.mem_wal_index_details` returns."""
    if isinstance(spec, ShardingSpec):
        return spec
    try:
        fields = tuple(
            part if isinstance(part, ShardingField) else ShardingField(**part)
            for part in spec["fields"]
        )
        return ShardingSpec(spec["spec_id"], fields)
    except (KeyError, TypeError) as error:
        raise InvalidInputError(
            f"a sharding spec must have the keys spec_id and fields, not {spec!r}: {error}"
        ) from None


def num_buckets_of(part: ShardingField) -> int:
    """Return the number of buckets of a field with the transform `bucket`.

    Raises InvalidInputError: the parameter is missing, or not a positive number of 32 bits.
    """
    text = part.parameters.get(NUM_BUCKETS, "")
    if not (text.isascii() and text.isdigit() and len(text) < 11 and 0 < int(text) < 2**31):
        raise InvalidInputError(
            f"sharding field {part.field_id!r}: its parameter {NUM_BUCKETS} must be a positive "
            f"number, not {text!r}"
        )
    return int(text)


class Buckets(NamedTuple):
    """The sharding of a table by buckets of a column.

    - `field_ids`: The id of the column.
    - `num_buckets`: The number of buckets.
    - `of`: Returns the buckets of values of the column.
    """

    field_ids: tuple[int, ...]
    num_buckets: int
    of: Callable[[pa.Array], pa.Array]


def buckets_of(table: OpenTable) -> Buckets | None:
    """Return the sharding of the MemWAL of a version, if it is by buckets of one column.

    Raises CorruptTableError. Raises InvalidInputError: the number of buckets is not valid.
    """
    index = find_index(section_of(table.manifest))
    for spec in () if index is None else decode(index, table.manifest.name).sharding_specs:
        if [part.transform for part in spec.fields] == [BUCKET]:
            (part,) = spec.fields
            return Buckets(part.source_ids, num_buckets_of(part), partial(_bucketed, table, spec))
    return None


def _bucketed(table: OpenTable, spec: ShardingSpec, values: pa.Array) -> pa.Array:
    """Return the buckets of values of the column of a sharding."""
    (field_id,) = spec.fields[0].source_ids
    rows = pa.RecordBatch.from_arrays([values], names=path_of(table.schema, field_id))
    return evaluate_sharding_spec(rows, spec, table.schema).column(0)


def can_bucket(dtype: pa.DataType) -> bool:
    """Return whether values of a type can be dealt out to buckets."""
    types = (*_FOUR_BYTES, *_UNSIGNED, *_EIGHT_BYTES, *_FLOATS, *_TEXT)
    return any(test(dtype) for test in types)


def can_identify(dtype: pa.DataType) -> bool:
    """Return whether each value of a type can have a shard of its own."""
    return pat.is_boolean(dtype) or pat.is_integer(dtype) or any(test(dtype) for test in _TEXT)


def sharding_values(part: ShardingField, column: pa.Array) -> pa.Array:
    """Return the values of a sharding field, by bucket or identity, from those of its column.

    Raises UnsupportedTypeError. Raises InvalidInputError: the number of buckets is missing.
    """
    if part.transform == IDENTITY:
        return column
    return _buckets(column, num_buckets_of(part), part.field_id)


def _values(part: ShardingField, batch: pa.RecordBatch | pa.Table, schema: Schema) -> pa.Array:
    if part.transform == UNSHARDED:
        return pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    if part.transform not in (BUCKET, IDENTITY):
        raise UnsupportedError(
            f"sharding field {part.field_id!r} has the transform "
            f"{part.transform or part.expression!r}; this release knows {BUCKET}, {IDENTITY} and "
            f"{UNSHARDED}"
        )
    return sharding_values(part, _source(part, batch, schema))


def _source(part: ShardingField, batch: pa.RecordBatch | pa.Table, schema: Schema) -> pa.Array:
    """Return the column of a field; of several source columns the first counts, as for pylance."""
    if not part.source_ids:
        raise InvalidInputError(f"sharding field {part.field_id!r} has no source column")
    path = path_of(schema, part.source_ids[0])
    if path is None:
        raise InvalidInputError(
            f"sharding field {part.field_id!r}: the table has no field with id {part.source_ids[0]}"
        )
    if path[0] not in batch.schema.names:
        raise InvalidInputError(
            f"sharding field {part.field_id!r}: the rows have no column {path[0]!r}"
        )
    column = batch.column(path[0])
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    return pc.struct_field(column, path[1:]) if len(path) > 1 else column


def path_of(schema: Schema, field_id: int) -> list[str] | None:
    """Return the names of a field and of the fields above it; None if no field has the id."""
    for top in schema.fields:
        stack = [(top, [top.name])]
        while stack:
            node, path = stack.pop()
            if node.id == field_id:
                return path
            stack += [(child, [*path, child.name]) for child in node.children]
    return None


def _buckets(column: pa.Array, count: int, name: str) -> pa.Array:
    dtype = column.type
    if not can_bucket(dtype):
        raise UnsupportedTypeError(
            f"sharding field {name!r}: values of type {dtype} cannot be dealt out to buckets"
        )
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    hashes = _text_hashes(column) if any(t(dtype) for t in _TEXT) else hash_numbers(_bits(column))
    buckets = ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
    return pa.array(np.where(valid, buckets, np.int32(0)), pa.int32())


def _bits(column: pa.Array) -> npt.NDArray[np.generic]:
    """Return the numbers to hash, of 4 or 8 bytes; any number for null."""
    dtype = column.type
    if any(test(dtype) for test in _FLOATS):
        values: npt.NDArray[np.generic] = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        values = np.where(values == 0, values.dtype.type(0), values)
        return np.where(np.isnan(values), values.dtype.type(np.nan), values)
    if any(test(dtype) for test in (*_FOUR_BYTES, *_UNSIGNED)):
        target = pa.uint32() if pat.is_unsigned_integer(dtype) else pa.int32()
    else:
        target = pa.uint64() if pat.is_uint64(dtype) else pa.int64()
    numbers: npt.NDArray[np.generic] = pc.fill_null(column.cast(target), 0).to_numpy(
        zero_copy_only=False
    )
    return numbers


def _text_hashes(column: pa.Array) -> npt.NDArray[np.uint32]:
    text = pc.fill_null(column, "").cast(pa.large_binary())
    _, raw, data = text.buffers()
    if not len(text):
        return np.empty(0, np.uint32)
    offsets = np.frombuffer(raw, np.int64)[text.offset : text.offset + len(text) + 1]
    content = np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return hash_bytes(offsets - offsets[0], content)
