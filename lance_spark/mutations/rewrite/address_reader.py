"""Rows of one version of a table by their addresses, in any order, as a writer of the table takes
them.
"""

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
from lance_spark.table.rows.addresses import OFFSET_BITS, offsets_by_fragment
from lance_spark.table.rows.deletion_writer import bitmap_of
from lance_spark.table.rows.deletions import Offsets
from lance_spark.table.rows.u64_segments import UInt64Array

#: Fragments whose files stay open.
_OPEN = 8


def add_unique_addresses(table: OpenTable, rows: dict[int, BitMap], addresses: UInt64Array) -> None:
    """Add addresses, in any order, to the bitmaps of offsets by fragment.

    Raises
    ------
    InvalidInputError
        One comes twice, or is there already.
    """
    unique = np.unique(addresses)
    repeated = len(unique) < len(addresses)
    for number, offsets in offsets_by_fragment(unique):
        result = bitmap_of(offsets)
        before = rows.setdefault(number, BitMap())
        repeated = repeated or not before.isdisjoint(result)
        before |= result
    if repeated:
        raise InvalidInputError(
            f"{table.store.display}: a row's address comes twice, and so would the row"
        )


class AddressReader:
    """Reads rows by address. Use as a context: its files are closed at the end.

    Parameters
    ----------
    table : OpenTable
        At the version that the addresses are of.
    fields : sequence of Field
        Top-level fields of the table to read; none are fine.
    """

    def __init__(self, table: OpenTable, fields: Sequence[Field]) -> None:
        self._table = table
        self._fields = tuple(fields)
        self._arrow = input_schema(Schema(self._fields))
        self._fragments = {item.id: item for item in counted_fragments(table.paths, table.manifest)}
        self._open: OrderedDict[int, RowReader] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
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
        """Return how many rows should be read at once, of a fragment such as that of an address."""
        return max(self._reader(address >> OFFSET_BITS).window_rows(), 1)

    def read(self, addresses: UInt64Array) -> RowBatch:
        """Return rows in the order of their addresses.

        Parameters
        ----------
        addresses : uint64 array
            Of live rows; one can come more than once.

        Returns
        -------
        MovedRows
            Its offsets are those in the fragments of the addresses, in the same order.

        Raises
        ------
        InvalidInputError
            No live row has the address.
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
                f"{name}: row {int(offsets[-1])} of fragment {number} is none: there are "
                f"{fragment.physical_rows} rows"
            )
        gone = offsets[np.isin(offsets, reader.deleted(), assume_unique=True)]
        if len(gone):
            raise InvalidInputError(f"{name}: row {int(gone[0])} of fragment {number} is deleted")
        rows = reader.at(offsets)
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
