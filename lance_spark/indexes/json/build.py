"""How JSON indexes are built: options, and the values at a path, with files of another type."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.indexes import builds
from lance_spark.indexes.builds import (
    Builder,
    ColumnPart,
    builder_of,
    is_string,
    joined,
    local_folder,
)
from lance_spark.indexes.details import Described
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.json import files as json_path
from lance_spark.indexes.registry import CREATED_IN_DOCUMENTS
from lance_spark.json.paths import parse_path
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Values at a path of JSON documents, which a temporary folder keeps until all have been read.
#
# The type of the values is known after the last document. So the documents are read once, a batch
# at a time, and their values are written to the local disk in parts.


@contextmanager
def values_at(
    batches: Iterable[tuple[pa.Array, UInt64Array]], path: str, part_bytes: int
) -> Iterator[tuple[pa.DataType, Iterator[ColumnPart]]]:
    """Lend the values at a path, and the id or address of each, in parts of about some bytes.

    Parameters
    ----------
    batches : iterable of (pa.Array, uint64 array)
        Documents, and the id or address of each.
    path : str
    part_bytes : int

    Yields
    ------
    DataType
        The type of all values.
    iterator of ColumnPart
        One part or more.

    Raises
    ------
    CorruptFileError, InvalidInputError, UnsupportedFeatureError
        As `json_path.extracted`.
    """
    dtype: pa.DataType | None = None
    waiting: list[tuple[pa.Array, UInt64Array]] = []
    size = 0
    files: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="lance-values-", dir=local_folder()) as folder:
        for documents, ids in batches:
            values = json_path.extracted(documents, path)
            dtype = json_path.common_type(dtype, values, path)
            waiting.append((values, ids))
            size += values.nbytes + ids.nbytes
            if size >= part_bytes:
                files.append(Path(folder) / str(len(files)))
                _write_part(files[-1], _part(waiting, dtype))
                waiting, size = [], 0
        known = dtype or pa.string()
        yield known, _parts(files, waiting, known)


def _parts(
    files: list[Path], waiting: list[tuple[pa.Array, UInt64Array]], dtype: pa.DataType
) -> Iterator[ColumnPart]:
    for file in files:
        with pa.OSFile(str(file)) as source:
            rows = pa.ipc.open_file(source).read_all().combine_chunks()
            values, ids = (column.combine_chunks() for column in rows.columns)
            yield ColumnPart(json_path.as_type(values, dtype), ids.to_numpy(), is_last=False)
    yield _part(waiting, dtype)


def _part(waiting: list[tuple[pa.Array, UInt64Array]], dtype: pa.DataType | None) -> ColumnPart:
    known = dtype or pa.string()
    values = [json_path.as_type(own, known) for own, _ in waiting]
    return ColumnPart(*joined(values, [pa.array(ids) for _, ids in waiting], known), is_last=True)


def _write_part(file: Path, part: ColumnPart) -> None:
    rows = pa.table([part.values, pa.array(part.ids)], ["values", "ids"])
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


# --------------------------------------------------------------------------------------------------
# How JSON indexes are built: options, and the values at a path, with files of another type.


def _target(parameters: Mapping[str, Any]) -> Builder:
    return builder_of(parameters["target_index_type"])


def _parse(options: Mapping[str, Any]) -> dict[str, Any]:
    unknown = options.keys() - {"path", "target_index_type", "target_index_parameters"}
    if unknown:
        raise InvalidOptionError(
            f"JSON index: option {min(unknown)!r} is unknown; the options are path, "
            "target_index_type, target_index_parameters"
        )
    path = options.get("path")
    try:
        parse_path(path if isinstance(path, str) else "[]")
    except ValueError as error:
        raise InvalidOptionError(
            f"JSON index: path must be a path such as $.user.id, not {path!r}: {error}"
        ) from None
    target = str(options.get("target_index_type", "BTREE")).upper()
    if target not in CREATED_IN_DOCUMENTS:
        raise InvalidOptionError(
            f"JSON index: target_index_type must be one of {', '.join(CREATED_IN_DOCUMENTS)}, not "
            f"{options['target_index_type']!r}"
        )
    text = options.get("target_index_parameters") or {}
    try:
        target_options = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        target_options = None
    if not isinstance(target_options, Mapping):
        raise InvalidOptionError(
            "JSON index: target_index_parameters must be a mapping, or the text of a JSON object, "
            f"not {text!r}"
        )
    return {
        "path": path,
        "target_index_type": target,
        "target_index_parameters": builder_of(target).parameters(target_options),
    }


def _write_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    target, path = _target(parameters), parameters["path"]
    with values_at(batches, path, builds.PART_BYTES) as (dtype, parts):
        if not target.supports(dtype):
            raise InvalidInputError(
                f"JSON index of path {path!r}: a {target.type_name} index does not take values of "
                f"type {dtype}"
            )
        target_parameters = parameters["target_index_parameters"]
        builds.write_files(segment, target, dtype, parts, [], target_parameters)


def _details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    target = _target(parameters)
    value = target.details(dtype, parameters["target_index_parameters"])
    return json_path.details(parameters["path"], target.type_url, value)


def _existing(files: IndexFiles) -> dict[str, Any]:
    target = json_path.target_of(files.segment)
    return {
        "path": target.path,
        "target_index_type": target.type_name,
        "target_index_parameters": builder_of(target.type_name).parameters_of(
            IndexFiles(files.paths, target.segment)
        ),
    }


def _cannot_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    # Segments can have values of different types.
    return False


def _meaning(files: IndexFiles) -> dict[str, Any]:
    target = json_path.target_of(files.segment)
    return {"path": target.path, "type of values": target.type_name}


BUILDER = Builder(
    "JSON",
    None,
    is_string,
    parse=_parse,
    details=_details,
    existing=_existing,
    json_columns=True,
    write_batches=_write_batches,
    can_merge=_cannot_merge,
    target_of=_target,
)
DESCRIBED = Described(meaning=_meaning)
