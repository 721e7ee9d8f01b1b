"""How many rows have a value in a column, where the pages of a fragment say that all of them do.

A page of file versions 2.1 to 2.3 says of each layer around its values whether it can be null there, and writers say so of those pages
alone that have nulls, whatever the schema says. So the metadata of a column tells that it has none; values are not read.

Specification: RepDefLayer of protos/encodings_v2_1.proto, DenseStructure of protos/encodings_v2_3.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.levels import Layer
from lance_spark.encoding.meta import PageMeta
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Field, alone
from lance_spark.proto import encodings_v2_1_pb2, encodings_v2_3_pb2
from lance_spark.scan.fragment.assemble import locate
from lance_spark.scan.pruning.zone_maps import is_overlaid
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

_LAYOUTS = ("mini_block_layout", "full_zip_layout", "constant_layout")
#: Fragments with nulls, above those without, after which it is taken for granted that others have some: their files are opened
#: once more to read the values.
_IN_VAIN = 3
_VALID = frozenset(int(layer) for layer in Layer if not layer.nullable)


def split_valid(task: ScanTask, path: Sequence[str]) -> tuple[int, ScanTask]:
    """Count rows of a task that have a value in a column, as far as that is known without reading values.

    Parameters
    ----------
    task : ScanTask
        Without filters.
    path : sequence of str
        Names of the structs that the column is in, and its own; one of those that the task reads.

    Returns
    -------
    int
        Live rows that have a value, of slices of fragments without nulls.
    ScanTask
        The slices of all other fragments; there may be none.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    fields = _path(task.lance_schema.fields, path)
    if fields is None or task.filters:
        return 0, task
    paths = TablePaths.open(task.uri, task.storage_options, task.base_paths)
    known: dict[int, bool] = {}
    count, left = 0, []
    for piece in task.slices:
        fragment = piece.fragment
        if fragment.id not in known:
            valid = sum(known.values())
            known[fragment.id] = len(known) - valid < valid + _IN_VAIN and is_all_valid(
                paths, fragment, fields
            )
        if known[fragment.id]:
            count += _live_rows(paths, piece)
        else:
            left.append(piece)
    return count, replace(task, slices=tuple(left))


def is_all_valid(paths: TablePaths, fragment: Fragment, path: tuple[Field, ...]) -> bool:
    """Tell whether the data file of a column says that no row of a fragment is null there.

    Parameters
    ----------
    paths : TablePaths
    fragment : Fragment
    path : tuple of Field
        The column, after the structs that it is in.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    if is_overlaid(fragment, {node.id for field in path for node in field.walk()}):
        return False
    file_of = {
        number: at
        for at, file in enumerate(fragment.files)
        for number in file.fields
        if number >= 0
    }
    parts = locate(alone(path), file_of)
    if len(parts) != 1:
        return False
    file = fragment.files[parts[0].file]
    reader = open_file(paths.open_data_file(file), file.fields)
    try:
        # Another child may be there in the place of one that is not.
        held = _path((parts[0].field,), [field.name for field in path])
        if not isinstance(reader, FileReader) or reader.version < (2, 1) or held is None:
            return False
        column_of = dict(zip(file.fields, file.column_indices, strict=False))
        columns = reader.column_metas([parts[0].field], column_of)
        # All leaves of the column are below it, and know of it.
        return any(
            bool(column.pages) and all(_has_no_nulls(page, reader) for page in column.pages)
            for column in columns
        )
    finally:
        reader.close()


def _has_no_nulls(page: PageMeta, reader: FileReader) -> bool:
    layers: Sequence[int] = ()
    try:
        if reader.version == (2, 3):
            planes = encodings_v2_3_pb2.PlanarLayout.FromString(page.encoding)
            layers = planes.structure.dense.layers
        else:
            message = encodings_v2_1_pb2.PageLayout.FromString(page.encoding)
            layout = message.WhichOneof("layout")
            if layout in _LAYOUTS:
                layers = getattr(message, layout).layers
    except DecodeError as error:
        raise CorruptFileError(
            f"{reader.source.name}: the description of a page cannot be parsed: {error}"
        ) from None
    return bool(layers) and all(layer in _VALID for layer in layers)


def _live_rows(paths: TablePaths, piece: FragmentSlice) -> int:
    fragment = piece.fragment
    if piece.start == 0 and piece.stop == fragment.physical_rows:
        return fragment.num_rows
    first, last = np.searchsorted(read_deletions(paths, fragment), [piece.start, piece.stop])
    return piece.num_rows - int(last - first)


def _path(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...] | None:
    """Return a column after the structs that it is in; None if there is none, or its nulls are not told by layers."""
    found: list[Field] = []
    for name in names:
        if found and (found[-1].is_packed or found[-1].logical_type != "struct"):
            return None
        field = next((one for one in fields if one.name == name), None)
        # What is computed has no id.
        if field is None or field.id < 0 or field.is_blob:
            return None
        found.append(field)
        fields = field.children
    if not found or pat.is_null(found[-1].arrow_field.type):
        return None
    return tuple(found)
