"""Writers of rewritten rows and columns; removal of their files that are not committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.errors import StorageError
from lance_spark.file.blobs.writer import BlobOptions
from lance_spark.file.matrices import without_sliced_matrices
from lance_spark.file.schema.schema import Schema
from lance_spark.table.bases import Target
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment, with_id
from lance_spark.table.fragments.limits import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_spark.table.fragments.writer import FragmentWriter, delete_fragments
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.rows.deletions import Offsets
from lance_spark.table.rows.ids import store_lineage
from lance_spark.table.rows.u64_segments import UInt64Array

#: Limit of a file that holds any number of rows.
UNLIMITED = 1 << 62
#: Maximum number of deleted rows in a batch.
_FILL_ROWS = 65_536


class Written:
    """Result of a task that wrote files. Small, and can be pickled."""

    __slots__ = ()

    @property
    def new_data(self) -> Iterable[Fragment]:
        """Fragments with the data files that the task wrote, and no others."""
        return ()

    @property
    def new_deletion_files(self) -> Iterable[str]:
        """Paths of the deletion files that the task wrote."""
        return ()


@dataclass(frozen=True, slots=True)
class NewFile(Written):
    """The data file of some columns of a fragment."""

    fragment_id: int
    file: DataFile

    @property
    def new_data(self) -> Iterable[Fragment]:
        """The data file."""
        return (Fragment(0, [self.file], 0),)


def undo(paths: TablePaths, results: Written | Iterable[Written]) -> None:
    """Delete the files of tasks that are not committed. Raises StorageError."""
    results = [results] if isinstance(results, Written) else list(results)
    paths.store.delete([path for result in results for path in result.new_deletion_files])
    delete_fragments(paths, [fragment for result in results for fragment in result.new_data])


def discard(paths: TablePaths, results: Iterable[Written]) -> None:
    """Delete the files of tasks that are not committed; ignore errors of the store."""
    for result in results:
        with suppress(StorageError):
            undo(paths, result)


def rewrite_writer(
    paths: TablePaths,
    schema: Schema,
    version: tuple[int, int],
    base_paths: Mapping[int, BasePath],
    *,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    tag: bytes = b"",
    targets: Sequence[Target] = (None,),
    first: int = 0,
) -> FragmentWriter:
    """Return a writer of rows that were read from the table: blob references stay references.

    - `paths`, `schema`, `version`, `max_rows_per_file`, `max_bytes_per_file`, `tag`, `targets`,
      `first`: Parameters of `FragmentWriter`.
    """
    folders = {number: base.path for number, base in base_paths.items() if not base.is_dataset_root}
    return FragmentWriter(
        paths,
        schema,
        version,
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        tag=tag,
        blobs=BlobOptions("reference", bases=folders),
        targets=targets,
        first=first,
    )


class MovedRowsWriter:
    """Writes rows that move to new fragments, and keeps their lineage with stable row ids.

    New rows can follow in the same fragments: `add`.

    - `stable_row_ids`: Whether the table has stable row ids.
    """

    def __init__(self, writer: FragmentWriter, stable_row_ids: bool) -> None:
        self._writer = writer
        self._stable = stable_row_ids
        self._lineage: list[tuple[UInt64Array, ...]] = []
        self._has_new_rows = False

    def write(self, values: pa.RecordBatch, *lineage: UInt64Array) -> None:
        """Write rows.

        - `*lineage`: Row ids, the versions that created the rows, and, unless the commit sets
          these, the versions that last updated them. Not used without stable row ids.
        """
        self._writer.write(values)
        if self._stable:
            self._lineage.append(lineage)

    def add(self, values: pa.RecordBatch) -> None:
        """Write new rows. With stable row ids, no rows can move after them.

        The commit assigns ids to the rows of a fragment after those that have them.
        """
        self._has_new_rows = True
        self._writer.write(values)

    def finish(self) -> list[Fragment]:
        """Close the files; return the new fragments, with the lineage of rows that moved."""
        fragments = self._writer.finish()
        if not self._lineage:
            return fragments
        lineage = map(np.concatenate, zip(*self._lineage, strict=True))
        return with_lineage(fragments, *lineage, has_new_rows=self._has_new_rows)

    def abort(self) -> None:
        """Delete the files. Raises StorageError."""
        self._writer.abort()


def with_lineage(
    fragments: Iterable[Fragment],
    row_ids: UInt64Array,
    created: UInt64Array,
    updated: UInt64Array | None = None,
    *,
    has_new_rows: bool = False,
) -> list[Fragment]:
    """Return new fragments with the lineage of their rows: one value for each row.

    - `has_new_rows`: Whether new rows, which have no values, follow.
    """
    new = []
    start = 0
    for fragment in fragments:
        rows = slice(start, start + fragment.physical_rows)
        if has_new_rows and start >= len(row_ids):
            new.append(fragment)
            continue
        proto = fragment.to_proto()
        store_lineage(
            proto,
            row_ids=row_ids[rows],
            created=created[rows],
            updated=None if updated is None else updated[rows],
            has_new_rows=has_new_rows,
        )
        new.append(Fragment.from_proto(proto, "new fragment"))
        start = rows.stop
    return new


def with_reserved_ids(fragments: Iterable[Fragment], first: int) -> tuple[Fragment, ...]:
    """Return new fragments with reserved ids, from `first` on."""
    return tuple(with_id(fragment, number) for number, fragment in enumerate(fragments, first))


class DeletedRowPadding:
    """Adds rows to new columns in the place of deleted rows.

    - `schema`: The new columns. If all are nullable, deleted rows get nulls; else they repeat a
      live row.
    """

    def __init__(self, schema: Schema, file_version: tuple[int, int]) -> None:
        # Files of version 2.0 cannot store null structs.
        self._with_nulls = file_version > (2, 0) and all(field.nullable for field in schema.fields)
        self._row: pa.RecordBatch | None = None
        self._pending_rows = 0

    def fill(
        self, live: Sequence[pa.RecordBatch], deleted: Offsets, num_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield `num_rows` rows: the rows of `live`, and padding at the offsets `deleted`.

        If no live row is known yet, the padding is yielded by the call that has the first one.
        """
        if not len(deleted):
            for batch in live:
                yield from self._pending(batch)
                self._row = batch.slice(batch.num_rows - 1)
                yield batch
            return
        if not live:
            if self._row is None:
                self._pending_rows += num_rows
            else:
                yield from self._repeat(self._row, num_rows)
            return
        table = pa.Table.from_batches(map(without_sliced_matrices, live), live[0].schema)
        is_live = np.ones(num_rows, dtype=bool)
        is_live[deleted] = False
        live_index = np.cumsum(is_live) - 1
        indices = pa.array(np.maximum(live_index, 0), mask=~is_live if self._with_nulls else None)
        for batch in table.slice(0, 1).combine_chunks().to_batches():
            yield from self._pending(batch)
        filled = table.take(indices).combine_chunks()
        self._row = table.slice(table.num_rows - 1).combine_chunks().to_batches()[0]
        yield from filled.to_batches()

    def _pending(self, row: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        count, self._pending_rows = self._pending_rows, 0
        if count:
            yield from self._repeat(row.slice(0, 1), count)

    def _repeat(self, row: pa.RecordBatch, num_rows: int) -> Iterator[pa.RecordBatch]:
        row = without_sliced_matrices(row)
        for position in range(0, num_rows, _FILL_ROWS):
            count = min(_FILL_ROWS, num_rows - position)
            indices = np.zeros(count, np.int64)
            mask = np.ones(count, dtype=bool) if self._with_nulls else None
            yield row.take(pa.array(indices, mask=mask))
