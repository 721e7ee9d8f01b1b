"""Counts the rows of fragments whose manifest does not record them.

| manifest | rows of a fragment | deleted rows |
| --- | --- | --- |
| without `writer_version` | rows of its first file, as the record may be wrong | rows of the deletion file |
| `physical_rows` is 0 | rows of its first file | |
| `num_deleted_rows` is 0 with a deletion file | | rows of the deletion file |
| any other | as recorded | as recorded |

pylance has the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lance_spark.errors import CorruptTableError
from lance_spark.storage.read.parallel_reads import read_all
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

if TYPE_CHECKING:
    from lance_spark.file.open import DataFileReader


def counted_fragments(paths: TablePaths, manifest: Manifest) -> tuple[Fragment, ...]:
    """Return the fragments of a version with their counts of rows. Opens files as needed.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    fragments = manifest.fragments
    open_all = not manifest.has_writer_version
    unknown = [i for i, item in enumerate(fragments) if open_all or not item.is_counted]
    if not unknown:
        return fragments
    counted = dict(
        zip(unknown, _count(paths, [fragments[i] for i in unknown], open_all), strict=True)
    )
    return tuple(counted.get(i, item) for i, item in enumerate(fragments))


def check_row_count(reader: DataFileReader, fragment: Fragment) -> None:
    """Refuse an open data file whose number of rows differs from its fragment.

    Raises
    ------
    CorruptTableError
    """
    # Early writers recorded 0.
    if fragment.physical_rows not in (0, reader.num_rows):
        raise CorruptTableError(
            f"{reader.source.name}: the file has {reader.num_rows} rows, but the manifest says "
            "that "
            f"fragment {fragment.id} has {fragment.physical_rows}"
        )


def _count(paths: TablePaths, fragments: Sequence[Fragment], open_all: bool) -> list[Fragment]:
    def count(fragment: Fragment) -> Fragment:
        rows = 0 if open_all else fragment.physical_rows
        if not rows and fragment.files:
            rows = _rows_of(paths, fragment)
        file = fragment.deletion_file
        deleted = file.num_deleted_rows if file is not None and not open_all else 0
        counted = fragment.with_counts(rows, deleted)
        if file is None or deleted:
            return counted
        return counted.with_counts(rows, len(read_deletions(paths, counted)))

    return read_all(count, fragments, local=paths.store.is_local)


def _rows_of(paths: TablePaths, fragment: Fragment) -> int:
    # Imported here, for tables of early releases only.
    from lance_spark.file.open import open_file

    file = fragment.files[0]
    reader = open_file(paths.open_data_file(file), file.fields)
    try:
        return reader.num_rows
    finally:
        reader.close()
