"""The types of indexes that can be created.

| type | index version | rows in its files |
| --- | --- | --- |
| BTREE | 0 | row ids |
| BITMAP | 0 | row ids |
| LABEL_LIST | 1 | row ids |
| NGRAM | 0 | row ids |
| ZONEMAP | 0 | row addresses |
| BLOOMFILTER | 0 | row addresses |
| INVERTED | 2; 3 for code | row ids |
| JSON | 0 | as its target |
| RTREE | 0 | row ids |
| IVF_FLAT and others of vectors | 1; 2 for IVF_RQ | row ids |

pylance 14 writes BTREE of version 1, with row addresses, in tables with stable row ids. Releases 4
to 13 do not read it: releases 4 to 11 drop it at the next change, and 12 and 13 let it cover rows
that it does not have (`lance_spark.scan.pruning.coverage`). All releases read version 0, which also
stays right when other columns of a row are updated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.mutations.indexes import parameters, segment_files, text
from lance_spark.mutations.indexes.boxes import boxes_of
from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.json_values import values_at
from lance_spark.mutations.vectors.builders import VECTOR_BUILDERS
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes import bitmap, json_path, label_list, ngram, rtree
from lance_spark.scan.indexes.btree import DEFAULT_BATCH_SIZE, BTreeWriter
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.indexes.order import order_of
from lance_spark.scan.indexes.zoned import bloom_filter, zone_map, zones
from lance_spark.scan.predicates.json_paths import parse_path
from lance_spark.scan.predicates.spatial.columns import encoding_of, encoding_of_storage
from lance_spark.scan.text.parameters import is_text
from lance_spark.scan.vectors import details
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.rows.u64_segments import UInt64Array

#: Types of indexes that the values in JSON documents can have.
_JSON_TARGETS = ("BTREE", "BITMAP", "NGRAM", "ZONEMAP", "BLOOMFILTER")
_BATCH_ROWS = 1 << 20
#: Other names of types.
_ALIASES = {"FTS": "INVERTED"}
#: Types of single values.
_SCALARS = (
    pat.is_integer,
    pat.is_floating,
    pat.is_boolean,
    pat.is_decimal,
    pat.is_temporal,
    pat.is_string,
    pat.is_large_string,
    pat.is_binary,
    pat.is_large_binary,
    pat.is_fixed_size_binary,
)


def builder_of(index_type: str) -> Builder:
    """Return the builder of a type.

    Raises
    ------
    InvalidInputError
        No index of the type can be created.
    """
    name = index_type.upper() if isinstance(index_type, str) else ""
    builder = BUILDERS.get(_ALIASES.get(name, name))
    if builder is None:
        raise InvalidInputError(
            f"index type {index_type!r} cannot be created; the types are {', '.join(BUILDERS)}"
        )
    return builder


def builder_of_segment(segment: table_pb2.IndexMetadata) -> Builder | None:
    """Return the builder of the type of a segment; None if it cannot be created."""
    index_type = indexes.type_of_index(segment)
    return BUILDERS.get(
        details.index_type_of(segment) if index_type == details.VECTOR else index_type
    )


def target_of(builder: Builder, parameters: Mapping[str, Any]) -> Builder:
    """Return the builder whose files an index has: itself, but for JSON indexes."""
    return BUILDERS[parameters["target_index_type"]] if builder.json_columns else builder


def can_extend(segment: table_pb2.IndexMetadata) -> bool:
    """Return whether an index can get more segments like one of its segments.

    Raises
    ------
    CorruptFileError
        The details of a JSON index cannot be parsed.
    """
    index_type = indexes.type_of_index(segment)
    if index_type == json_path.KIND:
        return json_path.target_of(segment).type_name in _JSON_TARGETS
    return builder_of_segment(segment) is not None


def _is_scalar(dtype: pa.DataType) -> bool:
    return any(test(dtype) for test in _SCALARS)


def _is_list_of_scalars(dtype: pa.DataType) -> bool:
    # Other clients refuse lists of a fixed size.
    return bool(pat.is_list(dtype) or pat.is_large_list(dtype)) and _is_scalar(dtype.value_type)


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pat.is_string(dtype) or pat.is_large_string(dtype))


def _write_btree(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    writer = BTreeWriter(segment, values.type, parameters["zone_size"])
    order = order_of(values)
    for start in range(0, len(order), _BATCH_ROWS):
        part = order[start : start + _BATCH_ROWS]
        writer.write(values.take(pa.array(part)), pa.array(ids[part]))
    writer.finish()


def _write_bitmap(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    bitmap.write(segment, values, ids)


def _write_label_list(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    label_list.write(segment, values, ids)


def _write_ngram(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    ngram.write(segment, values, ids)


def _write_zone_map(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    zone_map.write(segment, values, ids, parameters["rows_per_zone"])


def _zone_map_details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    return zone_map.details(dtype, parameters["rows_per_zone"])


def _write_bloom_filter(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    bloom_filter.write(
        segment, values, ids, parameters["number_of_items"], parameters["probability"]
    )


def _write_inverted(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    text.write(segment, [(values, ids)], parameters)


def _json_parameters(options: Mapping[str, Any]) -> dict[str, Any]:
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
    if target not in _JSON_TARGETS:
        raise InvalidOptionError(
            f"JSON index: target_index_type must be one of {', '.join(_JSON_TARGETS)}, not "
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
        "target_index_parameters": BUILDERS[target].parameters(target_options),
    }


def _write_json(
    segment: SegmentWriter, documents: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    _write_json_batches(segment, [(documents, ids)], parameters, ())


def _write_json_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    target, path = BUILDERS[parameters["target_index_type"]], parameters["path"]
    with values_at(batches, path, segment_files.PART_BYTES) as (dtype, parts):
        if not target.supports(dtype):
            raise InvalidInputError(
                f"JSON index of path {path!r}: a {target.type_name} index does not take values of "
                f"type {dtype}"
            )
        target_parameters = parameters["target_index_parameters"]
        segment_files.write_files(segment, target, dtype, parts, [], target_parameters)


def _json_details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    target = BUILDERS[parameters["target_index_type"]]
    value = target.details(dtype, parameters["target_index_parameters"])
    return json_path.details(parameters["path"], target.type_url, value)


def _json_existing(files: IndexFiles) -> dict[str, Any]:
    target = json_path.target_of(files.segment)
    return {
        "path": target.path,
        "target_index_type": target.type_name,
        "target_index_parameters": BUILDERS[target.type_name].parameters_of(
            IndexFiles(files.paths, target.segment)
        ),
    }


def _is_geometry(dtype: pa.DataType) -> bool:
    return encoding_of_storage(dtype) is not None


def _write_rtree(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    _write_rtree_batches(segment, [(values, ids)], parameters, ())


def _write_rtree_batches(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[Any],
) -> None:
    with boxes_of(batches) as (boxes, ids, null_rows):
        rtree.write(segment, boxes, ids, null_rows, parameters["page_size"])


def _cannot_merge(files: IndexFiles, parameters: Mapping[str, Any]) -> bool:
    return False


BUILDERS = {
    builder.type_name: builder
    for builder in (
        Builder(
            "BTREE",
            "/lance.table.BTreeIndexDetails",
            _write_btree,
            _is_scalar,
            defaults={"zone_size": DEFAULT_BATCH_SIZE},
            existing=parameters.of_btree,
        ),
        Builder("BITMAP", "/lance.table.BitmapIndexDetails", _write_bitmap, _is_scalar),
        Builder(
            "LABEL_LIST",
            "/lance.table.LabelListIndexDetails",
            _write_label_list,
            _is_list_of_scalars,
            version=1,
        ),
        Builder("NGRAM", "/lance.table.NGramIndexDetails", _write_ngram, _is_text),
        Builder(
            "ZONEMAP",
            "/lance.table.ZoneMapIndexDetails",
            _write_zone_map,
            _is_scalar,
            with_addresses=True,
            defaults={"rows_per_zone": zones.DEFAULT_ROWS},
            details=_zone_map_details,
            existing=parameters.of_zone_map,
        ),
        Builder(
            "BLOOMFILTER",
            "/lance.index.pb.BloomFilterIndexDetails",
            _write_bloom_filter,
            bloom_filter.supports,
            with_addresses=True,
            defaults={
                "number_of_items": zones.DEFAULT_ROWS,
                "probability": bloom_filter.DEFAULT_PROBABILITY,
            },
            existing=parameters.of_bloom_filter,
        ),
        Builder(
            "INVERTED",
            "/lance.table.InvertedIndexDetails",
            _write_inverted,
            is_text,
            plain_only=True,
            json_too=True,
            of_column=text.of_column,
            version=2,
            parse=text.parse,
            details=text.details,
            existing=text.existing,
            write_batches=text.write,
            stage="tokenize_docs",
        ),
        Builder(
            json_path.KIND,
            json_path.TYPE_URL,
            _write_json,
            _is_text,
            parse=_json_parameters,
            details=_json_details,
            existing=_json_existing,
            json_columns=True,
            write_batches=_write_json_batches,
            # Segments can have values of different types.
            can_merge=_cannot_merge,
        ),
        Builder(
            "RTREE",
            "/lance.index.pb.RTreeIndexDetails",
            _write_rtree,
            _is_geometry,
            lambda field: encoding_of(field) is not None,
            defaults={"page_size": rtree.DEFAULT_PAGE_SIZE},
            least=rtree.MIN_PAGE_SIZE,
            existing=parameters.of_rtree,
            write_batches=_write_rtree_batches,
            can_merge=_cannot_merge,
            # The order of the boxes is in memory.
            max_rows=16 << 20,
        ),
        *VECTOR_BUILDERS,
    )
}
