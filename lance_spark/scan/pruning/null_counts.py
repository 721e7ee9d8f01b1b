"""Counts of non-null rows from page metadata, for fragments whose pages have no nulls.

A page of file versions 2.1 to 2.3 records for each layer around its values whether it can be null
in this page. Writers set this only for pages that have nulls, independent of the schema. So the
metadata of a column shows that it has no nulls, and its values are not read.

Specification: RepDefLayer of protos/encodings_v2_1.proto, DenseStructure of
protos/encodings_v2_3.proto.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.levels import Layer
from lance_spark.encoding.meta import PageMeta
from lance_spark.errors import CorruptFileError
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field, reduced_to_path
from lance_spark.proto import encodings_v2_1_pb2, encodings_v2_3_pb2
from lance_spark.scan.fragment.assemble import files_of, locate
from lance_spark.scan.pruning.overlaid_rows import is_overlaid
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

_LAYOUTS = ("mini_block_layout", "full_zip_layout", "constant_layout")
#: If so many more fragments have nulls than have none, the others are not checked: the check opens
#: files that are opened once more to read their values.
_MAX_FAILED = 3
_VALID = frozenset(int(layer) for layer in Layer if not layer.nullable)


def split_valid(task: ScanTask, path: Sequence[str]) -> tuple[int, ScanTask]:
    """Count the rows of a task in fragments without nulls in a column, without reading values.

    Parameters
    ----------
    task : ScanTask
        Without filters.
    path : sequence of str
        Names from the top-level field to the column. The task reads this field.

    Returns
    -------
    int
        Live rows of the slices of fragments without nulls.
    ScanTask
        The other slices; it may have none.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    fields = _path(task.lance_schema.fields, path)
    if fields is None or task.filters:
        return 0, task
    paths = TablePaths.open(task.uri, task.storage_options, task.base_paths)
    all_valid: dict[int, bool] = {}
    count, remaining = 0, []
    for piece in task.slices:
        fragment = piece.fragment
        if fragment.id not in all_valid:
            passed = sum(all_valid.values())
            failed = len(all_valid) - passed
            all_valid[fragment.id] = failed < passed + _MAX_FAILED and is_all_valid(
                paths, fragment, fields
            )
        if all_valid[fragment.id]:
            count += _live_rows(paths, piece)
        else:
            remaining.append(piece)
    return count, replace(task, slices=tuple(remaining))


def is_all_valid(paths: TablePaths, fragment: Fragment, path: tuple[Field, ...]) -> bool:
    """Return whether the data file of a column shows that no row of a fragment is null.

    Parameters
    ----------
    paths : TablePaths
    fragment : Fragment
    path : tuple of Field
        The fields from the top-level field to the column.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    if is_overlaid(fragment, {node.id for field in path for node in field.walk()}):
        return False
    parts = locate(reduced_to_path(path), files_of(fragment))
    if len(parts) != 1:
        return False
    file = fragment.files[parts[0].file]
    with closing(open_file(paths.open_data_file(file), file.fields)) as reader:
        # The part may have another child of a struct than the column; see `locate`.
        stored = _path((parts[0].field,), [field.name for field in path])
        if not isinstance(reader, FileReader) or reader.version < (2, 1) or stored is None:
            return False
        column_of = dict(zip(file.fields, file.column_indices, strict=False))
        columns = reader.column_metas([parts[0].field], column_of)
        # All leaves are inside the column, so that the layers of any leaf include the column's.
        return any(
            bool(column.pages) and all(_has_no_nulls(page, reader) for page in column.pages)
            for column in columns
        )


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
            f"{reader.source.name}: the layout of a page cannot be parsed: {error}"
        ) from None
    return bool(layers) and all(layer in _VALID for layer in layers)


def _live_rows(paths: TablePaths, piece: FragmentSlice) -> int:
    fragment = piece.fragment
    if piece.start == 0 and piece.stop == fragment.physical_rows:
        return fragment.num_rows
    first, last = np.searchsorted(read_deletions(paths, fragment), [piece.start, piece.stop])
    return piece.num_rows - int(last - first)


def _path(fields: Sequence[Field], names: Sequence[str]) -> tuple[Field, ...] | None:
    """Return the fields from the top-level field to a column.

    Returns None if the column is not found, or if the layers of its pages do not show its nulls.
    """
    path: list[Field] = []
    for name in names:
        if path and (path[-1].is_packed or path[-1].logical_type != "struct"):
            return None
        field = next((field for field in fields if field.name == name), None)
        # Computed columns have negative ids.
        if field is None or field.id < 0 or field.is_blob:
            return None
        path.append(field)
        fields = field.children
    if not path or pat.is_null(path[-1].arrow_field.type):
        return None
    return tuple(path)
