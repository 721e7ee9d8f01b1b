"""Sizes of blobs by their descriptors, without a read of the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lance_spark.file.blobs.fields import has_bytes, paged
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths, sum_blobs
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.blob_descriptors import EXTERNAL, BlobDescriptors
from lance_spark.scan.blob_loader import MAX_COUNTED
from lance_spark.scan.fragment.column_reader import cuts
from lance_spark.scan.take import take_addresses
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array


def loads_blobs(schema: Schema) -> bool:
    """Return whether a read of columns loads the bytes of blobs."""
    return any(map(_loads_blobs, schema.fields))


def described_schema(schema: Schema, version: tuple[int, int]) -> Schema:
    """Return the columns of a read with descriptors in place of the bytes of blobs.

    - `version`: Version of the table's data files.
    """
    return replace(schema, fields=tuple(paged(field, version) for field in schema.fields))


def blob_bytes(rows: pa.RecordBatch, schema: Schema) -> Lengths:
    """Return the bytes of the blobs of each row; a whole object elsewhere counts for the most.

    - `rows`: Rows of a `described_schema`.
    """
    total = np.zeros(rows.num_rows, np.int64)
    for column, field in zip(rows.columns, schema.fields, strict=True):
        total += sum_blobs(column, field, _measured)
    return total


def bytes_at(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
) -> Lengths:
    """Return the bytes of the blobs of the rows at addresses; 0 if no blobs are loaded.

    - `schema`: Columns that will be read, and maybe computed columns.
    """
    fields = tuple(filter(_loads_blobs, schema.fields))
    if not fields or not len(addresses):
        return np.zeros(len(addresses), np.int64)
    version = next(file.version for fragment in fragments for file in fragment.files)
    described = described_schema(Schema(fields), version)
    taken = take_addresses(paths, fragments, described, addresses, open_files)
    (rows,) = taken.combine_chunks().to_batches()
    return blob_bytes(rows, described)


def cut_by_bytes(
    paths: TablePaths,
    fragments: Sequence[Fragment],
    schema: Schema,
    addresses: UInt64Array,
    open_files: OpenFiles | None,
) -> Iterator[slice]:
    """Yield slices of addresses whose rows can be read at once; see `bytes_at` and `cuts`."""
    return cuts(bytes_at(paths, fragments, schema, addresses, open_files))


def _loads_blobs(field: Field) -> bool:
    return any(node.is_blob and not node.children and has_bytes(node) for node in field.walk())


def _measured(array: pa.Array, field: Field) -> Lengths:
    blobs = BlobDescriptors.of(array, field.name)
    is_whole = blobs.live & (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
    return np.where(is_whole, MAX_COUNTED, np.minimum(blobs.sizes, MAX_COUNTED))
