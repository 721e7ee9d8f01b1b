"""`DatasetStatistics`: statistics of a version of a table, of its indexes and of its columns."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.storage.parallel import read_each

if TYPE_CHECKING:
    from lance_spark.dataset.dataset import Dataset
    from lance_spark.table.fragments.files import DataFile
    from lance_spark.table.paths import TablePaths


class DatasetStats(TypedDict):
    """Statistics of a version.

    - `num_deleted_rows`: Deleted rows that data files still have.
    - `num_small_files`: Fragments with fewer rows than `max_rows_per_group`.
    """

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """Statistics of a field.

    Attributes
    ----------
    id : int
        Id of the field.
    bytes_on_disk : int
        Bytes that its pages have in data files.
    """

    id: int
    bytes_on_disk: int


@dataclass(frozen=True, slots=True)
class DataStatistics:
    """Statistics of the data of a version, by field."""

    fields: tuple[FieldStatistics, ...]


class DatasetStatistics:
    """Statistics of a version; `Dataset.stats` returns it."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def dataset_stats(self, max_rows_per_group: int = 1024) -> DatasetStats:
        """Return numbers of fragments and of deleted rows.

        Parameters
        ----------
        max_rows_per_group : int
            A fragment with fewer rows counts as small.
        """
        fragments = self._dataset.fragments
        return {
            "num_deleted_rows": sum(fragment.num_deleted_rows for fragment in fragments),
            "num_fragments": len(fragments),
            "num_small_files": sum(
                fragment.physical_rows < max_rows_per_group for fragment in fragments
            ),
        }

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Return statistics of an index; see `Dataset.index_statistics`."""
        from lance_spark.mutations.indexes.existing import index_statistics

        return index_statistics(self._dataset._table, index_name)

    def data_stats(self) -> DataStatistics:
        """Return the stored bytes of each field. Reads the end of each data file.

        Raises
        ------
        UnsupportedFeatureError
            A data file has version 0.1.
        CorruptFileError, StorageError
        """
        table = self._dataset._table
        files = [file for fragment in self._dataset.fragments for file in fragment.files]
        sizes: Counter[int] = Counter()
        read = partial(_bytes_by_field, table.paths)
        for counted in read_each(read, files, local=table.store.is_local):
            sizes.update(counted)
        ids = [field.id for field in table.schema.walk()]
        return DataStatistics(tuple(FieldStatistics(number, sizes[number]) for number in ids))


def _bytes_by_field(paths: TablePaths, file: DataFile) -> dict[int, int]:
    """Return the bytes of each field of a data file."""
    with closing(open_file(paths.open_data_file(file), file.fields)) as reader:
        if not isinstance(reader, FileReader):
            raise UnsupportedFeatureError(
                f"{reader.source.name}: files of version 0.1 do not record the bytes of a column"
            )
        column_of = zip(file.fields, file.column_indices, strict=False)
        field_of = {column: number for number, column in column_of if column >= 0}
        sizes: Counter[int] = Counter()
        for index, meta in enumerate(reader.columns()):
            buffers = [*meta.buffers, *(part for page in meta.pages for part in page.buffers)]
            sizes[field_of.get(index, -1)] += sum(buffer.length for buffer in buffers)
    return sizes
