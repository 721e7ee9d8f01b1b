"""Data overlay files: new values for single cells of a fragment, put over what its data files hold.

| field of `DataOverlayFile` | content |
| --- | --- |
| data_file | a column for each field that it covers, with the new values in the order of the rows that they are for |
| shared_offset_bitmap | the rows, for all columns: a 32-bit Roaring bitmap of physical row offsets |
| field_coverage | the rows of each entry of `data_file.fields` |
| committed_version | the version that it came with; not needed to read |

The value of row r of a field is at position "number of covered rows before r" of the field's column. Overlays of a fragment are listed
oldest first, and the newest that covers a cell has its value, nulls included. A struct is no cell, its children are; whether the
struct itself is null stays as the data files have it. Lists, maps and packed structs are cells as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import UnsupportedFeatureError
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.schema.schema import Field, alone
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import decode_offsets

_Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Patch:
    """The cells of one field that one overlay covers.

    Attributes
    ----------
    overlay : int
        Number of the overlay within the fragment.
    offsets : int64 array
        The rows, increasing.
    """

    overlay: int
    offsets: _Offsets


class Overlays:
    """Puts the overlays of a fragment over arrays of its columns.

    Parameters
    ----------
    paths : TablePaths
    fragment : Fragment

    Raises
    ------
    CorruptTableError
        An overlay contradicts the format.
    """

    def __init__(self, paths: TablePaths, fragment: Fragment) -> None:
        self._paths = paths
        self._fragment = fragment
        self._overlays = fragment.overlays
        self._places = [
            {field: place for place, field in enumerate(one.data_file.fields) if field >= 0}
            for one in self._overlays
        ]
        self._patches: dict[int, tuple[_Patch, ...]] = {}
        self._readers: dict[int, DataFileReader] = {}

    def cover(self, field: Field) -> bool:
        """Tell whether some cells of a field, or of its children, have new values."""
        ids = {node.id for node in field.walk()}
        return any(ids & places.keys() for places in self._places)

    def apply(self, field: Field, array: pa.Array, rows: Rows) -> pa.Array:
        """Return the array with the new values.

        Parameters
        ----------
        field : Field
            A top-level field, or what one data file holds of it.
        array : Array
            What the data files hold.
        rows : range or int64 array
            The physical rows of the array, increasing.

        Raises
        ------
        CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError
        """
        return self._apply((field,), array, rows)

    def check(self) -> None:
        """Check that the files are there, and that the rows with new values are rows of the fragment.

        Raises
        ------
        CorruptTableError, CorruptFileError, MissingFileError, StorageError
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
                self._apply((*path, child), array.field(place), rows)
                for place, child in enumerate(field.children)
            ]
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(array.type), mask=mask)
        for patch in self._patches_of(field):
            array = self._patched(path, array, rows, patch)
        return array

    def _patched(
        self, path: tuple[Field, ...], array: pa.Array, rows: Rows, patch: _Patch
    ) -> pa.Array:
        covered, stored = _meet(rows, patch.offsets)
        if not len(covered):
            return array
        values = self._read(path, patch.overlay, stored)
        if values.type != array.type:
            values = values.cast(array.type)
        chosen = np.arange(len(array), dtype=np.int64)
        chosen[covered] = np.arange(len(array), len(array) + len(covered))
        return pa.concat_arrays([array, values]).take(pa.array(chosen))

    def _read(self, path: tuple[Field, ...], number: int, rows: RowNumbers) -> pa.Array:
        file = self._overlays[number].data_file
        columns = dict(zip(file.fields, file.column_indices, strict=False))
        (array,) = self._reader(number).read([alone(path)], rows, columns)
        for _ in path[1:]:
            # A null struct around it makes the cell null.
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
        found = self._patches.get(field.id)
        if found is None:
            every = (
                self._patch(number, overlay, field) for number, overlay in enumerate(self._overlays)
            )
            found = tuple(patch for patch in every if patch is not None)
            self._patches[field.id] = found
        return found

    def _patch(self, number: int, overlay: Overlay, field: Field) -> _Patch | None:
        places = self._places[number]
        parts = [node.id for node in field.walk() if node.id in places]
        if not parts:
            return None
        if field.is_blob:
            raise self._unsupported(overlay, field, "a blob column")
        leaves = [node.id for node in field.walk() if not node.children]
        if field.id not in places and not set(leaves) <= places.keys():
            raise self._unsupported(overlay, field, "a part of a list or map")
        bitmaps = overlay.bitmaps
        if len(bitmaps) == 1:
            return _Patch(number, self._offsets(overlay, bitmaps[0]))
        chosen = {bitmaps[places[part]] for part in parts}
        if len(chosen) > 1:
            raise self._unsupported(overlay, field, "different rows of the parts of a list or map")
        return _Patch(number, self._offsets(overlay, chosen.pop()))

    def _offsets(self, overlay: Overlay, data: bytes) -> _Offsets:
        name = f"{self._paths.store.display}: overlay {overlay.data_file.path}"
        return decode_offsets(data, self._fragment.physical_rows, name)

    def _unsupported(self, overlay: Overlay, field: Field, what: str) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"{self._paths.store.display}: overlay {overlay.data_file.path} has new values for {what} "
            f"(column {field.name!r}), which this release does not read; leave the column out, or use another client"
        )


def _is_cell(field: Field) -> bool:
    return field.logical_type != "struct" or field.is_packed or field.is_blob


def _meet(rows: Rows, offsets: _Offsets) -> tuple[RowNumbers, RowNumbers]:
    """Return which of some rows are among the offsets: their places in `rows`, and those in `offsets`."""
    if isinstance(rows, range):
        first, last = np.searchsorted(offsets, [rows.start, rows.stop])
        return offsets[first:last] - rows.start, np.arange(first, last)
    places = np.searchsorted(offsets, rows)
    found = np.flatnonzero(places < len(offsets))
    found = found[offsets[places[found]] == rows[found]]
    return found, places[found]
