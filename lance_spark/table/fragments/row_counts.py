"""Row counts of fragments whose manifest does not record them.

| manifest | rows | deleted rows |
| --- | --- | --- |
| without `writer_version` | of the first data file | of the deletion file |
| `physical_rows` is 0 | of the first data file | |
| `num_deleted_rows` is 0, with a deletion file | | of the deletion file |
| any other | as recorded | as recorded |

The counts in a manifest without `writer_version` may be wrong. pylance has the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptTableError
from lance_spark.storage.parallel import read_all
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

if TYPE_CHECKING:
    from lance_spark.file.open import DataFileReader


def counted_fragments(paths: TablePaths, manifest: Manifest) -> tuple[Fragment, ...]:
    """Return the fragments of a version with their row counts. Opens files where needed.

    Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
    """
    fragments = manifest.fragments
    recount = not manifest.has_writer_version
    if not recount and manifest.has_row_counts:
        return fragments
    unknown = [
        index for index, fragment in enumerate(fragments) if recount or not fragment.is_counted
    ]
    counted = _count(paths, [fragments[index] for index in unknown], recount)
    by_index = dict(zip(unknown, counted, strict=True))
    return tuple(by_index.get(index, fragment) for index, fragment in enumerate(fragments))


def check_row_count(reader: DataFileReader, fragment: Fragment) -> None:
    """Check that an open data file has as many rows as its fragment. Raises CorruptTableError."""
    # Early writers recorded 0.
    if fragment.physical_rows not in (0, reader.num_rows):
        raise CorruptTableError(
            f"{reader.source.name}: the file has {reader.num_rows} rows, but the manifest says "
            f"that fragment {fragment.id} has {fragment.physical_rows}"
        )


def _count(paths: TablePaths, fragments: Sequence[Fragment], recount: bool) -> list[Fragment]:
    def count(fragment: Fragment) -> Fragment:
        rows = 0 if recount else fragment.physical_rows
        if not rows and fragment.files:
            rows = _read_row_count(paths, fragment)
        file = fragment.deletion_file
        deleted = file.num_deleted_rows if file is not None and not recount else 0
        counted = fragment.with_counts(rows, deleted)
        if file is None or deleted:
            return counted
        return counted.with_counts(rows, len(read_deletions(paths, counted)))

    return read_all(count, fragments, local=paths.store.is_local)


def _read_row_count(paths: TablePaths, fragment: Fragment) -> int:
    # Imported here because only tables of early releases need it.
    from lance_spark.file.open import open_file

    file = fragment.files[0]
    reader = open_file(paths.open_data_file(file), file.fields)
    try:
        return reader.num_rows
    finally:
        reader.close()


# --------------------------------------------------------------------------------------------------
# The fragments of a version, with what short reads ask of all of them: it is computed once.


class ListedFragments(tuple[Fragment, ...]):
    """Fragments in the order of a table, with their rows counted."""

    @cached_property
    def row_ends(self) -> npt.NDArray[np.int64]:
        """The live rows up to the end of each fragment."""
        return np.cumsum([fragment.num_rows for fragment in self], dtype=np.int64)

    @cached_property
    def physical_ends(self) -> npt.NDArray[np.int64]:
        """The physical rows, with deleted rows, up to the end of each fragment."""
        return np.cumsum([fragment.physical_rows for fragment in self], dtype=np.int64)

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """The positions of the fragments by their ids."""
        return {fragment.id: position for position, fragment in enumerate(self)}

    @cached_property
    def by_id(self) -> Mapping[int, Fragment]:
        """The fragments by their ids."""
        return {fragment.id: fragment for fragment in self}

    @property
    def num_rows(self) -> int:
        """The live rows of all fragments."""
        return int(self.row_ends[-1]) if self else 0


def row_ends(fragments: Sequence[Fragment]) -> npt.NDArray[np.int64]:
    """Return the live rows up to the end of each fragment."""
    if isinstance(fragments, ListedFragments):
        return fragments.row_ends
    return ListedFragments(fragments).row_ends


def by_id(fragments: Iterable[Fragment]) -> Mapping[int, Fragment]:
    """Return fragments by their ids."""
    if isinstance(fragments, ListedFragments):
        return fragments.by_id
    return ListedFragments(fragments).by_id
