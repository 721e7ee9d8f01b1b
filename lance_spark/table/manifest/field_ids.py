"""The greatest field id of a manifest: new fields get ids above it."""

from __future__ import annotations

from lance_spark.proto import table_pb2


def max_field_id(manifest: table_pb2.Manifest) -> int:
    """Return the greatest field id that a manifest has or records; -1 without fields."""
    greatest = max((field.id for field in manifest.fields), default=-1)
    for fragment in manifest.fragments:
        for file in fragment.files:
            greatest = max(greatest, max(file.fields, default=-1))
        for overlay in fragment.overlays:
            greatest = max(greatest, max(overlay.data_file.fields, default=-1))
    if manifest.HasField("max_allocated_field_id"):
        greatest = max(greatest, manifest.max_allocated_field_id)
    return greatest
