"""How JSON indexes are built: options, and the values at a path, with files of another type."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.indexes.registry import CREATED_IN_DOCUMENTS
from lance_spark.mutations.indexes import segment_files
from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.builders import builder_of
from lance_spark.mutations.indexes.column_types import is_string
from lance_spark.mutations.indexes.described import Described
from lance_spark.mutations.indexes.json_values import values_at
from lance_spark.scan.indexes import json_path
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.predicates.json_paths import parse_path
from lance_spark.table.rows.u64_segments import UInt64Array


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


def _write(
    segment: SegmentWriter, documents: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    _write_batches(segment, [(documents, ids)], parameters, ())


def _write_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    target, path = _target(parameters), parameters["path"]
    with values_at(batches, path, segment_files.PART_BYTES) as (dtype, parts):
        if not target.supports(dtype):
            raise InvalidInputError(
                f"JSON index of path {path!r}: a {target.type_name} index does not take values of "
                f"type {dtype}"
            )
        target_parameters = parameters["target_index_parameters"]
        segment_files.write_files(segment, target, dtype, parts, [], target_parameters)


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
    _write,
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
