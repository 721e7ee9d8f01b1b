"""Data overlay files: new values for single cells of a fragment, which replace the stored values.

| field of `DataOverlayFile` | content |
| --- | --- |
| data_file | a column for each field that it covers: the new values in the order of their rows |
| shared_offset_bitmap | the rows, for all columns: a 32-bit Roaring bitmap of row offsets |
| field_coverage | the rows of each entry of `data_file.fields` |
| committed_version | the version that added the overlay; not needed to read |

The value of row r of a field is at position "number of covered rows before r" of the field's
column. Overlays of a fragment are listed oldest first. The newest overlay that covers a cell has
its value, nulls included. The children of a struct are cells, the struct itself is not: the data
files decide whether it is null. Lists, maps and packed structs are cells as a whole.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.schema.field import Field, reduced_to_path
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import decode_offsets

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Patch:
    """The rows, increasing, whose values of one field one overlay of the fragment covers."""

    overlay: int
    offsets: _Offsets


class Overlays:
    """Applies the overlays of a fragment to arrays of its columns.

    Raises CorruptTableError: an overlay contradicts the format.
    """

    def __init__(self, paths: TablePaths, fragment: Fragment) -> None:
        self._paths = paths
        self._fragment = fragment
        self._overlays = fragment.overlays
        # For each overlay, the position of each field id in the list of its data file.
        self._positions = [
            {field_id: i for i, field_id in enumerate(overlay.data_file.fields) if field_id >= 0}
            for overlay in self._overlays
        ]
        #: By the ids of a field and of those below it: several files can have parts of one list.
        self._patches: dict[tuple[int, ...], tuple[_Patch, ...]] = {}
        self._readers: dict[int, DataFileReader] = {}

    def cover(self, field: Field) -> bool:
        """Return whether some cells of a field, or of its children, have new values."""
        ids = {node.id for node in field.walk()}
        return any(ids & positions.keys() for positions in self._positions)

    def unstored(self, field: Field, stored: Collection[int]) -> Field | None:
        """Return the cells of a field that have new values, but that no data file holds.

        - `stored`: The ids of fields that data files hold.

        Returns the field with the cells alone; None if there are none.
        """
        if not _is_cell(field):
            parts = (self.unstored(child, stored) for child in field.children)
            children = tuple(part for part in parts if part is not None)
            return replace(field, children=children) if children else None
        is_stored = any(node.id in stored for node in field.walk())
        return field if not is_stored and self.cover(field) else None

    def apply(self, field: Field, array: pa.Array, rows: Rows) -> pa.Array:
        """Return the array with the new values.

        - `field`: A top-level field, or the part of it that one data file holds.
        - `array`: The values of the data files.
        - `rows`: The physical rows of the array, increasing.

        Raises CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError.
        """
        return self._apply((field,), array, rows)

    def check(self) -> None:
        """Check that the files exist, and that they cover rows of the fragment only.

        Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
        """
        for number, overlay in enumerate(self._overlays):
            self._reader(number)
            for bitmap in overlay.bitmaps:
                self._offsets(overlay, bitmap)

    def close(self) -> None:
        """Close the files."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _apply(self, path: tuple[Field, ...], array: pa.Array, rows: Rows) -> pa.Array:
        field = path[-1]
        if not self.cover(field):
            return array
        if not _is_cell(field):
            children = [
                self._apply((*path, child), array.field(position), rows)
                for position, child in enumerate(field.children)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
        return self._patched(path, array, rows, self._patches_of(field))

    def _patched(
        self, path: tuple[Field, ...], array: pa.Array, rows: Rows, patches: Sequence[_Patch]
    ) -> pa.Array:
        parts, count = [array], len(array)
        # The place of each row's value in all parts; later overlays come last.
        source: _Offsets | None = None
        for patch in patches:
            covered, stored = _intersect(rows, patch.offsets)
            if not len(covered):
                continue
            values = self._read(path, patch.overlay, stored)
            if source is None:
                source = np.arange(count, dtype=np.int64)
            source[covered] = np.arange(count, count + len(covered))
            count += len(covered)
            parts.append(values if values.type == array.type else values.cast(array.type))
        return array if source is None else pa.concat_arrays(parts).take(pa.array(source))

    def _read(self, path: tuple[Field, ...], number: int, rows: RowNumbers) -> pa.Array:
        file = self._overlays[number].data_file
        columns = dict(zip(file.fields, file.column_indices, strict=False))
        (array,) = self._reader(number).read([reduced_to_path(path)], rows, columns)
        for _ in path[1:]:
            # `flatten` makes a cell null where a struct around it is null.
            (array,) = array.flatten()
        return array

    def _reader(self, number: int) -> DataFileReader:
        reader = self._readers.get(number)
        if reader is None:
            file = self._overlays[number].data_file
            reader = open_file(self._paths.open_data_file(file), file.fields)
            self._readers[number] = reader
        return reader

    def _patches_of(self, field: Field) -> tuple[_Patch, ...]:
        ids = tuple(node.id for node in field.walk())
        patches = self._patches.get(ids)
        if patches is None:
            candidates = (
                self._patch(number, overlay, field) for number, overlay in enumerate(self._overlays)
            )
            patches = tuple(patch for patch in candidates if patch is not None)
            self._patches[ids] = patches
        return patches

    def _patch(self, number: int, overlay: Overlay, field: Field) -> _Patch | None:
        positions = self._positions[number]
        parts = [node.id for node in field.walk() if node.id in positions]
        if not parts:
            return None
        if field.is_blob:
            raise self._unsupported(overlay, field, "a blob column")
        if field.id not in positions and not field.leaf_ids <= positions.keys():
            raise self._unsupported(overlay, field, "a part of a list or map")
        bitmaps = overlay.bitmaps
        if len(bitmaps) == 1:
            return _Patch(number, self._offsets(overlay, bitmaps[0]))
        chosen = {bitmaps[positions[part]] for part in parts}
        if len(chosen) > 1:
            raise self._unsupported(overlay, field, "different rows of the parts of a list or map")
        return _Patch(number, self._offsets(overlay, chosen.pop()))

    def _offsets(self, overlay: Overlay, data: bytes) -> _Offsets:
        name = f"{self._paths.store.display}: overlay {overlay.data_file.path}"
        return decode_offsets(data, self._fragment.physical_rows, name)

    def _unsupported(self, overlay: Overlay, field: Field, target: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{self._paths.store.display}: overlay {overlay.data_file.path} has new values for "
            f"{target} (column {field.name!r}), which this release does not read; leave the column "
            "out, or use another client"
        )


def _is_cell(field: Field) -> bool:
    return field.logical_type != "struct" or field.is_packed or field.is_blob


def _intersect(rows: Rows, offsets: _Offsets) -> tuple[RowNumbers, RowNumbers]:
    """Return the rows that are among the offsets: their indices in `rows`, and in `offsets`."""
    if isinstance(rows, range):
        first, last = np.searchsorted(offsets, [rows.start, rows.stop])
        return offsets[first:last] - rows.start, np.arange(first, last)
    indices = np.searchsorted(offsets, rows)
    common = np.flatnonzero(indices < len(offsets))
    common = common[offsets[indices[common]] == rows[common]]
    return common, indices[common]
