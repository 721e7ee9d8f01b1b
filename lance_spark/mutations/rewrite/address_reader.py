"""A reader of rows by their addresses, in any order, in the types that a writer accepts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import input_schema
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mutations.rewrite.row_reader import RowBatch, RowReader, splice
from lance_spark.table.align import align
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.deletions import Offsets, bitmap_of
from lance_spark.table.rows.index import OFFSET_BITS, offsets_by_fragment
from lance_spark.table.rows.u64_segments import UInt64Array

#: Maximum number of fragments whose files stay open.
_OPEN = 8


def add_unique_addresses(table: OpenTable, rows: dict[int, BitMap], addresses: UInt64Array) -> None:
    """Add addresses, in any order, to bitmaps of offsets by fragment.

    Raises
    ------
    InvalidInputError
        An address occurs twice, or is in a bitmap already.
    """
    unique = np.unique(addresses)
    repeated = len(unique) < len(addresses)
    for number, offsets in offsets_by_fragment(unique):
        new = bitmap_of(offsets)
        existing = rows.setdefault(number, BitMap())
        repeated = repeated or not existing.isdisjoint(new)
        existing |= new
    if repeated:
        raise InvalidInputError(
            f"{table.store.display}: a row address occurs twice; give each row once"
        )


class AddressReader:
    """Reads rows by address. Use as a context: its end closes the files.

    Parameters
    ----------
    table : OpenTable
        The version that the addresses belong to.
    fields : sequence of Field
        Top-level fields of the table to read; can be empty.
    """

    def __init__(self, table: OpenTable, fields: Sequence[Field]) -> None:
        self._table = table
        self._fields = tuple(fields)
        self._arrow = input_schema(Schema(self._fields))
        self._fragments = {
            fragment.id: fragment for fragment in counted_fragments(table.paths, table.manifest)
        }
        self._open: OrderedDict[int, RowReader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the data files."""
        while self._open:
            _, reader = self._open.popitem()
            reader.close()

    def window_rows(self, address: int) -> int:
        """Return the number of rows to read at once from the fragment of an address."""
        return max(self._reader(address >> OFFSET_BITS).window_rows(), 1)

    def read(self, addresses: UInt64Array) -> RowBatch:
        """Return rows in the order of their addresses.

        Parameters
        ----------
        addresses : uint64 array
            Addresses of live rows; an address can occur more than once.

        Returns
        -------
        RowBatch
            With the offsets of the addresses, in the same order.

        Raises
        ------
        InvalidInputError
            An address is not that of a live row.
        CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError
        """
        unique, inverse = np.unique(addresses, return_inverse=True)
        parts = [self._read(number, offsets) for number, offsets in offsets_by_fragment(unique)]
        if len(parts) == 1 and np.array_equal(inverse, np.arange(len(unique))):
            return parts[0]
        return RowBatch(
            self._values([part.values for part in parts], inverse),
            np.concatenate([part.offsets for part in parts])[inverse],
            np.concatenate([part.row_ids for part in parts])[inverse],
            np.concatenate([part.created for part in parts])[inverse],
            np.concatenate([part.updated for part in parts])[inverse],
        )

    def _read(self, number: int, offsets: Offsets) -> RowBatch:
        reader = self._reader(number)
        name = self._table.store.display
        fragment = self._fragments[number]
        if int(offsets[-1]) >= fragment.physical_rows:
            raise InvalidInputError(
                f"{name}: row {int(offsets[-1])} of fragment {number} is out of range: the "
                "fragment "
                f"has {fragment.physical_rows} rows"
            )
        deleted = offsets[np.isin(offsets, reader.deleted(), assume_unique=True)]
        if len(deleted):
            raise InvalidInputError(
                f"{name}: row {int(deleted[0])} of fragment {number} is deleted"
            )
        rows = reader.read(offsets)
        values = align(rows.values, self._arrow) if self._fields else rows.values
        return RowBatch(values, offsets, rows.row_ids, rows.created, rows.updated)

    def _reader(self, number: int) -> RowReader:
        reader = self._open.pop(number, None)
        if reader is None:
            fragment = self._fragments.get(number)
            if fragment is None:
                raise InvalidInputError(
                    f"{self._table.store.display}: version {self._table.version} has no fragment "
                    f"{number}, which a _rowaddr names"
                )
            manifest = self._table.manifest
            reader = RowReader(
                self._table.paths,
                fragment,
                self._fields,
                manifest.data_storage_version,
                manifest.base_paths,
            )
        self._open[number] = reader
        if len(self._open) > _OPEN:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
        return reader

    def _values(
        self, parts: Sequence[pa.RecordBatch], order: npt.NDArray[np.intp]
    ) -> pa.RecordBatch:
        if not self._fields:
            return pa.RecordBatch.from_arrays([pa.nulls(len(order))], names=["_"]).select([])
        indices = pa.array(order)
        columns = []
        for index, field in enumerate(self._arrow):
            first, *others = (part.column(index) for part in parts)
            column = splice(first, pa.chunked_array(others, field.type), indices)
            columns.append(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)
