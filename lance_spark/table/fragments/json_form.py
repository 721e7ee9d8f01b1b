"""Fragments as JSON, in the form of pylance's `FragmentMetadata.to_json`.

| key | value |
| --- | --- |
| `id`, `physical_rows` | numbers |
| `files` | list of `path`, `fields`, `column_indices`, `file_size_bytes`, `base_id` and versions |
| `deletion_file` | `read_version`, `id`, `file_type` (`array` or `bitmap`), rows, or null |
| `row_id_meta` | `Inline`: bytes of the row ids as numbers, or null |
| `created_at_version_meta`, `last_updated_at_version_meta` | `inline`, or null |
| `overlays` | empty here |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lance_spark.errors import CorruptTableError, InvalidInputError, UnsupportedFeatureError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.files import DataFile, DeletionFile, DeletionFileType, Lineage
from lance_spark.table.fragments.fragment import Fragment

_TYPES = {DeletionFileType.ARROW: "array", DeletionFileType.BITMAP: "bitmap"}
_LINEAGES = {
    "row_id_meta": (Lineage.ROW_IDS, "Inline"),
    "created_at_version_meta": (Lineage.CREATED, "inline"),
    "last_updated_at_version_meta": (Lineage.UPDATED, "inline"),
}


def to_json(fragment: Fragment) -> dict[str, Any]:
    """Return a fragment as a mapping that `json.dumps` takes.

    Raises
    ------
    UnsupportedFeatureError
        The fragment has overlays, or row ids or versions outside of the manifest.
    """
    if fragment.has_overlays:
        raise UnsupportedFeatureError(f"{fragment.name} has overlays, which have no JSON form")
    result: dict[str, Any] = {
        "id": fragment.id,
        "files": [_file(file) for file in fragment.files],
        "overlays": [],
        "physical_rows": fragment.physical_rows,
        "deletion_file": None,
    }
    deletions = fragment.deletion_file
    if deletions is not None:
        result["deletion_file"] = {
            "read_version": deletions.read_version,
            "id": deletions.id,
            "file_type": _TYPES[deletions.file_type],
            "num_deleted_rows": deletions.num_deleted_rows,
            "base_id": deletions.base_id,
        }
    for key, (lineage, form) in _LINEAGES.items():
        data = fragment.inline_lineage(lineage)
        if data is None and fragment.has_lineage(lineage):
            raise UnsupportedFeatureError(
                f"{fragment.name}: {key} is not in the manifest, and has no JSON form"
            )
        result[key] = None if data is None else {form: list(data)}
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


def from_json(data: str | bytes | Mapping[str, Any]) -> Fragment:
    """Return the fragment of a JSON text, or of its mapping.

    Raises
    ------
    InvalidInputError
        The text is not the form of `to_json`.
    UnsupportedFeatureError
        The fragment has overlays.
    """
    try:
        value = dict(data) if isinstance(data, Mapping) else json.loads(data)
        if value.get("overlays"):
            raise UnsupportedFeatureError("a fragment with overlays has no JSON form here")
        deletions = value.get("deletion_file")
        fragment = Fragment(
            value["id"],
            [_data_file(file) for file in value["files"]],
            value["physical_rows"],
            None if deletions is None else _deletion_file(deletions),
        )
        proto = fragment.to_proto()
        for key, (lineage, form) in _LINEAGES.items():
            if value.get(key) is not None:
                setattr(proto, lineage.value[1], bytes(value[key][form]))
        # Parses the paths and field ids, which are checked.
        message = table_pb2.DataFragment.FromString(proto.SerializeToString())
        fragment = Fragment.from_proto(message, "JSON")
        _ = fragment.files, fragment.deletion_file
    except (ValueError, TypeError, KeyError, AttributeError, CorruptTableError) as error:
        raise InvalidInputError(f"not the JSON form of a fragment: {error!r}") from None
    return fragment


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


def _deletion_file(value: Mapping[str, Any]) -> DeletionFile:
    types = {text: dtype for dtype, text in _TYPES.items()}
    return DeletionFile(
        file_type=types[value["file_type"]],
        read_version=value["read_version"],
        id=value["id"],
        num_deleted_rows=value.get("num_deleted_rows") or 0,
        base_id=value.get("base_id"),
    )
