"""The fields of the primary key and of the clustering key: metadata and members of their messages.

A table cannot be read by pylance if a field of its primary key is nullable, is below a nullable
field, has children, or is below a list or a map.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lance_spark.encoding.field_metadata import is_true
from lance_spark.errors import InvalidInputError
from lance_spark.proto import file_pb2 as pb

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_CLUSTERING_KEY = "lance-schema:unenforced-clustering-key"


def is_key(name: str) -> bool:
    """Return whether a key of the metadata of a field makes it a part of the primary key."""
    return name == PRIMARY_KEY or name.startswith(f"{PRIMARY_KEY}:")


def set_keys(proto: pb.Field, metadata: Mapping[str, bytes]) -> None:
    """Set the key fields of a message from the metadata of the field, as pylance does."""
    if not metadata:
        return
    position_key = f"{PRIMARY_KEY}:position"
    position = _position(metadata, position_key)
    if position_key in metadata or is_true(metadata.get(PRIMARY_KEY)):
        proto.unenforced_primary_key = True
        proto.unenforced_primary_key_position = position
    position_key = f"{_CLUSTERING_KEY}:position"
    if position_key in metadata:
        proto.unenforced_clustering_key_position = _position(metadata, position_key)


def _position(metadata: Mapping[str, bytes], key: str) -> int:
    value = metadata.get(key, b"0")
    if not value.isdigit() or len(value) > 9:
        raise InvalidInputError(f"field metadata {key!r} must be a number, not {value!r}")
    return int(value)


def wrong_keys(fields: Collection[pb.Field]) -> Iterator[tuple[pb.Field, str]]:
    """Yield each field that cannot be in a primary key but is, and the reason."""
    keys = [field for field in fields if field.unenforced_primary_key]
    if not keys:
        return
    by_id = {field.id: field for field in fields}
    parents = {field.parent_id for field in fields}
    for field in keys:
        path = [field]
        # A path that leads back to itself is refused elsewhere.
        while path[0].parent_id in by_id and len(path) <= len(by_id):
            path.insert(0, by_id[path[0].parent_id])
        nullable = next((node.name for node in path if node.nullable), None)
        if field.id in parents:
            reason = "it has fields below it"
        elif nullable is not None:
            reason = f"field {nullable!r} is nullable"
        elif any(node.logical_type != "struct" for node in path[:-1]):
            reason = "it is in a list or a map"
        else:
            continue
        yield field, f"cannot be in the primary key ({PRIMARY_KEY}), because {reason}"
