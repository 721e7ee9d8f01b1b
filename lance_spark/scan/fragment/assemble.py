"""The map from fields to data files of a fragment, and the assembly of a field from several files.

A fragment may have several data files, each with some of the fields. From version 2.1 on a file
names leaf fields only, so that a struct can have one child in one file and one in another: each
file is read for the part it holds, and the structs are merged. A field that no file names was added
after the fragment was written: it is null there. A field id of -2 in a file marks a column that
another file replaced, and matches nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.blocks import nulls
from lance_spark.encoding.rows import RowNumbers, Rows
from lance_spark.errors import CorruptTableError, UnsupportedFeatureError
from lance_spark.file.open import DataFileReader, open_file
from lance_spark.file.schema.field import Field, reduced_to_path
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import decode_offsets


@dataclass(frozen=True, slots=True)
class FieldPart:
    """The part of a top-level field that one file holds.

    - `file`: Number of the data file within the fragment; negative for other sources of values.
    - `field`: The field, pruned to the children in that file.
    """

    file: int
    field: Field


class FilesOfFields(dict[int, int]):
    """The number of the data file that holds each field, by field id.

    - `repeated`: What is wrong with fields that several files name, by field id. Files before
      version 2.1 may all name a struct whose children they share.
    """

    __slots__ = ("repeated",)

    def __init__(self) -> None:
        self.repeated: dict[int, str] = {}


def files_of(fragment: Fragment) -> FilesOfFields:
    """Return the data file of each field. If several files name a struct, it is the last one."""
    file_of = FilesOfFields()
    for number, file in enumerate(fragment.files):
        known = [field_id for field_id in file.fields if field_id >= 0]
        if not number:
            file_of.update(dict.fromkeys(known, 0))
            continue
        for field_id in known:
            if file_of.setdefault(field_id, number) != number:
                names = f"{fragment.files[file_of[field_id]].path} and {file.path}"
                file_of.repeated[field_id] = (
                    f"{fragment.name}: field id {field_id} is in two data files, {names}"
                )
                file_of[field_id] = number
    return file_of


def locate(field: Field, file_of: FilesOfFields) -> list[FieldPart]:
    """Find the files that hold a top-level field.

    - `field`: The field as the reader wants it.
    - `file_of`: Data file number for each field id that some file names.

    In file order; empty if no file holds any of it. If no file holds a wanted child of a
    struct, a part may have another child instead, which shows where the struct is null. Raises
    CorruptTableError: two files hold a leaf of the field: nothing says which values are right.
    """
    for leaf in _leaves(field) if file_of.repeated else ():
        if leaf.id in file_of.repeated:
            raise CorruptTableError(file_of.repeated[leaf.id])
    field = _with_witness(field, file_of)
    files = sorted({file_of[f.id] for f in _leaves(field) if f.id in file_of})
    if not files and field.id in file_of:
        files = [file_of[field.id]]
    parts = []
    for file in files:
        pruned = _prune(field, file, file_of)
        if pruned is not None:
            parts.append(FieldPart(file, pruned))
    return parts


def assemble(
    field: Field, parts: Sequence[FieldPart], arrays: Sequence[pa.Array], num_rows: int
) -> pa.Array:
    """Build the array of a top-level field from the arrays of its parts.

    - `field`: The field as the reader wants it.
    - `parts`, `arrays`: The result of `locate`, and the array read for each part; every array has
      `num_rows` values.

    Raises UnsupportedTypeError: no file holds the field, and its nulls are too wide.
    """
    if not parts:
        return nulls(num_rows, field.to_arrow())
    if len(parts) == 1 and (parts[0].field is field or parts[0].field == field):
        return arrays[0]
    return _merge(field, [(part.field, array) for part, array in zip(parts, arrays, strict=True)])


def _with_witness(field: Field, file_of: Mapping[int, int]) -> Field:
    """Add a stored child to each struct, nested or not, whose wanted children no file holds."""
    if field.logical_type != "struct" or field.is_packed or field.is_blob:
        return field
    children = tuple(_with_witness(child, file_of) for child in field.children)
    if any(new is not old for new, old in zip(children, field.children, strict=True)):
        return replace(field, children=children)
    if field.unread and not any(leaf.id in file_of for leaf in _leaves(field)):
        for child in sorted(field.unread, key=lambda child: len(child.children)):
            witness = _first_stored(child, file_of)
            if witness is not None:
                return replace(field, children=(*field.children, witness))
    return field


def _first_stored(field: Field, file_of: Mapping[int, int]) -> Field | None:
    """Return the field, pruned to its first child that files hold whole; None if they hold none."""
    if field.is_blob:
        return None
    if field.logical_type != "struct" or field.is_packed:
        return field if all(leaf.id in file_of for leaf in _leaves(field)) else None
    stored = (_first_stored(child, file_of) for child in field.children)
    first = next((child for child in stored if child is not None), None)
    return None if first is None else replace(field, children=(first,))


def _leaves(field: Field) -> list[Field]:
    if field.is_leaf:
        return [field]
    return [leaf for child in field.children for leaf in _leaves(child)]


def _prune(field: Field, file: int, file_of: Mapping[int, int]) -> Field | None:
    if not field.children:
        return field if file_of.get(field.id) == file else None
    children = tuple(c for c in (_prune(c, file, file_of) for c in field.children) if c is not None)
    if children:
        return field if children == field.children else replace(field, children=children)
    # A packed struct or a blob is one column: its children have no entries of their own.
    return field if file_of.get(field.id) == file else None


def _merge(field: Field, sources: Sequence[tuple[Field, pa.Array]]) -> pa.Array:
    first, array = sources[0]
    if len(sources) == 1 and first == field:
        return array
    dtype = field.to_arrow().type
    if pa.types.is_struct(dtype):
        children = [_merge_child(child, sources, len(array)) for child in field.children]
        mask = _null_in_all([source for _, source in sources])
        fields = [dtype.field(i) for i in range(dtype.num_fields)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    # Every source of a list has the same lengths; only the items differ.
    child = field.children[0]
    items = [(f.children[0], _items(a)) for f, a in sources]
    merged = _merge(child, items)
    offsets, mask = _offsets(array)
    if pa.types.is_map(dtype):
        keys, values = merged.flatten()
        return pa.MapArray.from_arrays(offsets, keys, values, type=dtype, mask=mask)
    if pa.types.is_fixed_size_list(dtype):
        return pa.FixedSizeListArray.from_arrays(merged, type=dtype, mask=mask)
    array_class = pa.LargeListArray if pa.types.is_large_list(dtype) else pa.ListArray
    return array_class.from_arrays(offsets, merged, type=dtype, mask=mask)


def _merge_child(
    child: Field, sources: Sequence[tuple[Field, pa.Array]], num_rows: int
) -> pa.Array:
    parts = [
        (candidate, array.field(position))
        for field, array in sources
        for position, candidate in enumerate(field.children)
        if candidate.id == child.id
    ]
    return _merge(child, parts) if parts else nulls(num_rows, child.to_arrow())


def _null_in_all(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return which structs are null in every file.

    A file that was written for new children alone may have nulls where the struct is not null.
    """
    if not all(array.null_count for array in arrays):
        return None
    # Most scans do without the kernels, and are spared the import.
    import pyarrow.compute as pc

    mask = arrays[0].is_null()
    for array in arrays[1:]:
        mask = pc.and_(mask, array.is_null())
    return mask


def _items(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.FixedSizeListArray):
        return array.values.slice(
            array.offset * array.type.list_size, len(array) * array.type.list_size
        )
    start, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return array.values.slice(start, stop - start)


def _offsets(array: pa.Array) -> tuple[pa.Array | None, pa.Array | None]:
    mask = array.is_null() if array.null_count else None
    if isinstance(array, pa.FixedSizeListArray):
        return None, mask
    offsets = array.offsets
    first = offsets[0]
    if first.as_py():
        import pyarrow.compute as pc

        offsets = pc.subtract(offsets, first)
    return offsets, mask


# --------------------------------------------------------------------------------------------------
# Data overlay files: new values for single cells of a fragment, which replace the stored values.
#
# | field of `DataOverlayFile` | content |
# | --- | --- |
# | data_file | a column for each field that it covers: the new values in the order of their rows |
# | shared_offset_bitmap | the rows, for all columns: a 32-bit Roaring bitmap of row offsets |
# | field_coverage | the rows of each entry of `data_file.fields` |
# | committed_version | the version that added the overlay; not needed to read |
#
# The value of row r of a field is at position "number of covered rows before r" of the field's
# column. Overlays of a fragment are listed oldest first. The newest overlay that covers a cell has
# its value, nulls included. The children of a struct are cells, the struct itself is not: the data
# files decide whether it is null. Lists, maps and packed structs are cells as a whole.

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
