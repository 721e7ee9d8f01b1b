"""Rows by their positions, or by their row ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.types import extended_table
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.take import in_order, parse_positions, take_addresses, take_rows
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.open import OpenTable
from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    import pyarrow.dataset as pads

    from lance_spark.dataset.reader import VersionReader
    from lance_spark.dataset.scan_keywords import Columns


# --------------------------------------------------------------------------------------------------
# Addresses of rows after compactions.


def remapped(table: OpenTable, addrs: pa.Array) -> pa.Array | None:
    """Return the addresses of rows after recorded compactions; see `Dataset.remap_row_addrs`.

    Raises CorruptTableError, StorageError. Raises InvalidInputError: the array has another type
    than uint64.
    """
    if not isinstance(addrs, pa.Array) or addrs.type != pa.uint64():
        shown = addrs.type if isinstance(addrs, pa.Array) else type(addrs).__name__
        raise InvalidInputError(f"addrs must be an array of uint64, not {shown}")
    moves = MovedRows.of(table.paths, section_of(table.manifest))
    if not moves:
        return None
    addresses = addrs.fill_null(0).to_numpy()
    fragments = BitMap(np.unique(addresses >> np.uint64(32)).astype(np.uint32))
    moved, is_live = moves.addresses(addresses, fragments)
    is_null = addrs.is_null().to_numpy(zero_copy_only=False) | ~is_live
    return pa.array(moved, pa.uint64(), mask=is_null)


# --------------------------------------------------------------------------------------------------
# Rows in memory, for the operations of pyarrow's datasets that need all of them.


def in_memory(data: Any) -> pads.InMemoryDataset:
    """Return rows in any form that `write_dataset` takes as a dataset of pyarrow."""
    import pyarrow.dataset as pads

    return pads.InMemoryDataset(table_of(data))


# --------------------------------------------------------------------------------------------------
# Rows by their positions, or by their row ids.


def take(
    reader: VersionReader,
    indices: Sequence[int],
    columns: Columns | None,
    blob_handling: str | None,
) -> pa.Table:
    """Return rows by their positions; see `Dataset.take`.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises InvalidInputError: a position
    is out of range, or a column does not exist.
    """
    table = reader.table
    computed = None
    if isinstance(columns, Mapping):
        from lance_spark.dataset.scan_request import parse_computed

        computed = parse_computed(columns, reader.as_read(table.schema, blob_handling))
        # A column that is not read says how many rows constants have.
        columns = computed.read or [row_meta.ROW_ADDRESS.name]
    names = row_meta.without_repeats(columns)
    schema = row_meta.of_take(reader.select(names, blob_handling=blob_handling))
    positions = parse_positions(indices, reader.max_rows)
    if table.manifest.flags.stable_row_ids:
        row_meta.check_row_ids(reader.fragments, schema.fields)
    unique, inverse = np.unique(positions, return_inverse=True)
    batches = take_rows(table.paths, reader.fragments, schema, unique, reader.open_files)
    rows = pa.Table.from_batches(batches, schema.to_arrow())
    rows = row_meta.with_repeats(rows, columns)
    rows = extended_table(rows if computed is None else computed.of_table(rows))
    return in_order(rows, inverse)


def take_ids(
    reader: VersionReader,
    row_ids: Sequence[int],
    columns: Sequence[str] | None,
    blob_handling: str | None,
) -> pa.Table:
    """Return rows by their row ids; see `Dataset.take_rows`.

    Raises CorruptTableError, CorruptFileError, StorageError. Raises InvalidInputError: a column
    does not exist.
    """
    names = row_meta.without_repeats(columns)
    schema = row_meta.of_take(reader.select(names, blob_handling=blob_handling))
    is_live, addresses = reader.row_finder().find(row_ids)
    rows = take_addresses(
        reader.table.paths, reader.fragments, schema, addresses[is_live], reader.open_files
    )
    return extended_table(row_meta.with_repeats(rows, columns))
