"""Methods of `Dataset` that read the bytes of blobs, whole or in ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from lance_spark.dataset.rows.samples import SampleMethods
from lance_spark.errors import InvalidInputError
from lance_spark.file.blobs.fields import Handling
from lance_spark.scan.blob_files import blob_addresses, blob_schema
from lance_spark.scan.take import take_addresses

_SELECTORS = ("ids", "addresses", "indices")


class BlobMethods(SampleMethods):
    """Methods of `Dataset` that read the bytes of blobs."""

    def read_blobs(
        self,
        blob_column: str,
        ids: Sequence[int] | None = None,
        addresses: Sequence[int] | None = None,
        indices: Sequence[int] | None = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, bytes | None]]:
        """Return blobs as bytes, read together.

        Parameters
        ----------
        blob_column, ids, addresses, indices
            As in `take_blobs`.
        io_buffer_size, preserve_order
            No effect: bytes are read in one step, and always in the given order.

        Returns
        -------
        list of (int, bytes or None)
            Row address and bytes of each row; None for a null.

        Raises
        ------
        InvalidInputError
            As in `take_blobs`.
        CorruptTableError, CorruptFileError, StorageError
        """
        # Reads of Spark import this module, and do not need Arrow's functions.
        import pyarrow.compute as pc

        rows = {"ids": ids, "addresses": addresses, "indices": indices}
        schema = blob_schema(self._table, blob_column, Handling.BINARY)
        row_addresses = blob_addresses(self._table, self.fragments, rows, self._row_finder())
        table = take_addresses(
            self._table.paths,
            self.fragments,
            schema,
            row_addresses.astype(np.uint64),
            self._open_files,
        )
        column: Any = table.column(0).combine_chunks()
        for field in self._table.schema.path(blob_column)[1:]:
            column = pc.struct_field(column, field.name)
        return list(zip(row_addresses.tolist(), column.to_pylist(), strict=True))

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Sequence[tuple[int, int, int]],
        *,
        selector: Literal["ids", "addresses", "indices"],
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, int, bytes | None]]:
        """Return ranges of the bytes of blobs. The ranges of one blob are read together.

        Parameters
        ----------
        blob_column : str
            As in `take_blobs`.
        requests : sequence of (int, int, int)
            Row, offset in its blob, and length.
        selector : str
            How rows are given: ``ids``, ``addresses`` or ``indices``; see `take_blobs`.
        io_buffer_size, preserve_order
            No effect: results are always in the order of the requests.

        Returns
        -------
        list of (int, int, bytes or None)
            For each request its number, the row address, and the bytes; None for a null.

        Raises
        ------
        InvalidInputError
            A range lies outside its blob; or as in `take_blobs`.
        CorruptTableError, CorruptFileError, StorageError

        Examples
        --------
        >>> dataset.read_blob_ranges("image", [(7, 0, 1024)], selector="indices")
        """
        if selector not in _SELECTORS:
            raise InvalidInputError(
                f"selector must be one of {', '.join(_SELECTORS)}, not {selector!r}"
            )
        parsed = [(int(row), int(offset), int(length)) for row, offset, length in requests]
        rows: dict[str, Any] = {selector: [row for row, _, _ in parsed]}
        row_addresses = blob_addresses(self._table, self.fragments, rows, self._row_finder())
        by_row: dict[int, list[int]] = {}
        for number, address in enumerate(row_addresses.tolist()):
            by_row.setdefault(address, []).append(number)
        parts: list[bytes | None] = [None] * len(parsed)
        files = self.take_blobs(blob_column, addresses=list(by_row), buffer_size=0)
        for file, numbers in zip(files, by_row.values(), strict=True):
            if file is None:
                continue
            with file:
                read = file.read_ranges([parsed[number][1:] for number in numbers])
            for number, data in zip(numbers, read, strict=True):
                parts[number] = data
        return list(zip(range(len(parsed)), row_addresses.tolist(), parts, strict=True))
