"""Fragments as JSON, in the form of pylance's `FragmentMetadata.to_json`.

| key | value |
| --- | --- |
| `id`, `physical_rows` | numbers |
| `files` | list of `path`, `fields`, `column_indices`, `file_size_bytes`, `base_id` and versions |
| `deletion_file` | `read_version`, `id`, `file_type`: `array` or `bitmap`; or null |
| `row_id_meta` | `Inline`: bytes of the row ids as numbers, or null |
| `created_at_version_meta`, `last_updated_at_version_meta` | `inline`, or null |
| `overlays` | list of `data_file`, `committed_version`, and `offsets`: all, or by field |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap

from lance_spark.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import (
    DataFile,
    DeletionFile,
    DeletionFileType,
    Lineage,
    Overlay,
)

_TYPES = {DeletionFileType.ARROW: "array", DeletionFileType.BITMAP: "bitmap"}
_LINEAGES = {
    "row_id_meta": (Lineage.ROW_IDS, "Inline"),
    "created_at_version_meta": (Lineage.CREATED, "inline"),
    "last_updated_at_version_meta": (Lineage.UPDATED, "inline"),
}


def to_json(proto: table_pb2.DataFragment, name: str) -> dict[str, Any]:
    """Return a fragment as a mapping that `json.dumps` takes.

    - `name`: Name of the fragment, for errors.

    Raises CorruptTableError. Raises UnsupportedFeatureError: the fragment has row ids or versions
    outside of the manifest.
    """
    result: dict[str, Any] = {
        "id": proto.id,
        "files": [_file(DataFile.from_proto(file)) for file in proto.files],
        "overlays": [
            _overlay(Overlay.from_proto(overlay), proto.physical_rows, name)
            for overlay in proto.overlays
        ],
        "physical_rows": proto.physical_rows,
        "deletion_file": None,
    }
    if proto.HasField("deletion_file"):
        deletions = DeletionFile.from_proto(proto.deletion_file)
        result["deletion_file"] = {
            "read_version": deletions.read_version,
            "id": deletions.id,
            "file_type": _TYPES[deletions.file_type],
            "num_deleted_rows": deletions.num_deleted_rows,
            "base_id": deletions.base_id,
        }
    for key, (lineage, form) in _LINEAGES.items():
        group, inline, _ = lineage.value
        stored = proto.WhichOneof(group)
        if stored not in (None, inline):
            raise UnsupportedFeatureError(
                f"{name}: {key} is not in the manifest, and has no JSON form"
            )
        result[key] = None if stored is None else {form: list(getattr(proto, inline))}
    return result


def _file(file: DataFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
        "file_major_version": file.file_major_version,
        "file_minor_version": file.file_minor_version,
        "file_size_bytes": file.file_size_bytes or None,
        "base_id": file.base_id,
    }


def _overlay(overlay: Overlay, num_rows: int, name: str) -> dict[str, Any]:
    rows = overlay.offsets
    # Few bytes can stand for billions of rows.
    if any(
        field and field.max() >= num_rows for field in (rows if isinstance(rows, list) else [rows])
    ):
        raise CorruptTableError(f"{name}: an overlay has a row that is out of range")
    return {
        "data_file": _file(overlay.data_file),
        "offsets": [list(field) for field in rows] if isinstance(rows, list) else list(rows),
        "committed_version": overlay.committed_version or None,
    }


def from_json(data: str | bytes | Mapping[str, Any]) -> table_pb2.DataFragment:
    """Return the message of a fragment, of a JSON text or of its mapping.

    Raises InvalidInputError: the text is not the form of `to_json`.
    """
    try:
        value = dict(data) if isinstance(data, Mapping) else json.loads(data)
        proto = table_pb2.DataFragment(
            id=value["id"],
            physical_rows=value["physical_rows"],
            files=[_data_file(file).to_proto() for file in value["files"]],
            overlays=[_overlay_of(overlay).to_proto() for overlay in value.get("overlays") or ()],
        )
        if value.get("deletion_file") is not None:
            proto.deletion_file.CopyFrom(_deletion_file(value["deletion_file"]).to_proto())
        for key, (lineage, form) in _LINEAGES.items():
            if value.get(key) is not None:
                setattr(proto, lineage.value[1], bytes(value[key][form]))
        for file in proto.files:
            # Checks the path and the field ids.
            DataFile.from_proto(file)
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        CorruptTableError,
    ) as error:
        raise InvalidInputError(f"not the JSON form of a fragment: {error!r}") from None
    return proto


def _data_file(value: Mapping[str, Any]) -> DataFile:
    return DataFile(
        value["path"],
        tuple(value["fields"]),
        tuple(value["column_indices"]),
        value["file_major_version"],
        value["file_minor_version"],
        value.get("file_size_bytes") or 0,
        value.get("base_id"),
    )


def _overlay_of(value: Mapping[str, Any]) -> Overlay:
    rows = value["offsets"]
    by_field = rows and isinstance(rows[0], list)
    bitmaps = [BitMap(field) for field in (rows if by_field else [rows])]
    return Overlay(
        _data_file(value["data_file"]),
        tuple(bitmap.serialize() for bitmap in bitmaps),
        value.get("committed_version") or 0,
    )


def _deletion_file(value: Mapping[str, Any]) -> DeletionFile:
    types = {text: dtype for dtype, text in _TYPES.items()}
    return DeletionFile(
        file_type=types[value["file_type"]],
        read_version=value["read_version"],
        id=value["id"],
        num_deleted_rows=value.get("num_deleted_rows") or 0,
        base_id=value.get("base_id"),
    )
