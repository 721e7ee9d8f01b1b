"""Addresses of rows after compactions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.table.indexes.sections import section_of
from lance_spark.table.open import OpenTable


def remapped(table: OpenTable, addrs: pa.Array) -> pa.Array | None:
    """Return the addresses of rows after recorded compactions; see `Dataset.remap_row_addrs`.

    Raises
    ------
    InvalidInputError
        The array has another type than uint64.
    CorruptTableError, StorageError
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
