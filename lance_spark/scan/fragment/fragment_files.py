"""The data files of one fragment, opened when they are first read and shared by its readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from lance_spark.encoding.rows import RowNumbers
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.open_files import OpenFiles
from lance_spark.scan.fragment.assemble import files_of
from lance_spark.scan.fragment.overlays import Overlays
from lance_spark.scan.fragment.row_meta import RowMeta
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.row_counts import check_row_count
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

NO_READERS: Mapping[int, DataFileReader] = MappingProxyType({})


class FragmentFiles:
    """The open files of a fragment, and their overlays and other parts besides its columns.

    - `paths`: Opens the table's files.
    - `open_files`: Files that an earlier reader left open; `release` returns them.
    - `first_position`: Position of the fragment's first live row in the table's order; `_rowoffset`
      needs it.
    - `readers`: Data files that are open, by number; closed with this object.
    - `physical_rows`: Rows of the fragment, deleted rows included.
    - `file_of`: Number of the data file that holds a field, by the field's id.
    """

    def __init__(
        self,
        paths: TablePaths,
        fragment: Fragment,
        open_files: OpenFiles | None = None,
        first_position: int | None = None,
        readers: Mapping[int, DataFileReader] = NO_READERS,
    ) -> None:
        self.paths = paths
        self.fragment = fragment
        self.physical_rows = fragment.physical_rows
        self.file_of = files_of(fragment)
        self.meta = RowMeta(fragment, first_position, self.deleted, paths)
        self.overlays = Overlays(paths, fragment) if fragment.has_overlays else None
        self._open_files = open_files
        self._readers = dict(readers)
        self._columns: dict[int, dict[int, int]] = {}
        self._deleted: RowNumbers | None = None

    def expect(self, numbers: Iterable[int]) -> None:
        """Begin to read the ends of data files and the deletion file, if they are remote.

        Otherwise each would be requested after the one before has arrived.
        """
        if self.paths.store.is_local:
            return
        for number in numbers:
            if number >= 0 and number not in self._readers:
                self.paths.expect_data_file(self.fragment.files[number])
        if self.fragment.deletion_file is not None and self._deleted is None:
            self.paths.expect_deletion_file(self.fragment.deletion_file, self.fragment.id)

    def reader(self, number: int) -> DataFileReader:
        """Return the reader of a data file, by the file's number in the fragment.

        Raises CorruptTableError: the file has another number of rows than the manifest says.
        """
        reader = self._readers.get(number)
        if reader is None:
            reader = self._readers[number] = self._open(number)
        return reader

    def columns_of(self, number: int) -> dict[int, int]:
        """Return the column of each field in a data file, by the field's id."""
        columns = self._columns.get(number)
        if columns is None:
            file = self.fragment.files[number]
            columns = dict(zip(file.fields, file.column_indices, strict=False))
            self._columns[number] = columns
        return columns

    def deleted(self) -> RowNumbers:
        """Return the offsets of the deleted rows, increasing. They are read once."""
        if self._deleted is None:
            self._deleted = self._read_deleted()
        return self._deleted

    def close(self, metrics: ScanMetrics) -> None:
        """Close the files, and add the counts of their reads to `metrics`."""
        for reader in self._readers.values():
            metrics.add_source(reader.source)
            reader.close()
        self._readers.clear()
        if self.overlays is not None:
            self.overlays.close()

    def release(self, metrics: ScanMetrics) -> None:
        """Return the files to the `OpenFiles` that they came from, for the next reader.

        The counts of their reads are added to `metrics`.
        """
        if self._open_files is not None:
            for number, reader in self._readers.items():
                metrics.add_source(reader.source)
                file = self.fragment.files[number]
                self._open_files.give_back((file.base_id, file.path), reader)
            self._readers.clear()

    def _open(self, number: int) -> DataFileReader:
        file = self.fragment.files[number]
        reader = None
        if self._open_files is not None:
            reader = self._open_files.take_out((file.base_id, file.path))
        if reader is None:
            reader = open_file(self.paths.open_data_file(file), file.fields)
        check_row_count(reader, self.fragment)
        return reader

    def _read_deleted(self) -> RowNumbers:
        return read_deletions(self.paths, self.fragment)
