"""The fields of the primary key and of the clustering key: metadata and members of their messages.

A table cannot be read by pylance if a field of its primary key is nullable, is below a nullable
field, has children, or is below a list or a map.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from lance_spark.errors import InvalidInputError
from lance_spark.proto import file_pb2 as pb

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_CLUSTERING_KEY = "lance-schema:unenforced-clustering-key"


def set_keys(proto: pb.Field, metadata: Mapping[str, bytes]) -> None:
    """Set the key fields of a message from the metadata of the field, as pylance does."""
    if not metadata:
        return
    position_key = f"{PRIMARY_KEY}:position"
    position = _position(metadata, position_key)
    if position_key in metadata or metadata.get(PRIMARY_KEY, b"").lower() in (
        b"true",
        b"1",
        b"yes",
    ):
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


def check_primary_key(fields: Collection[pb.Field], existing: Collection[pb.Field] = ()) -> None:
    """Raise an error if a field cannot be in the primary key of a table.

    Parameters
    ----------
    fields : collection of file_pb2.Field
        The new schema.
    existing : collection of file_pb2.Field
        The schema before. What is wrong there already does not prevent other changes.

    Raises
    ------
    InvalidInputError
    """
    if not any(field.unenforced_primary_key for field in fields):
        return
    before = {field.id for field, _, _ in _wrong_keys(existing)}
    for field, name, reason in _wrong_keys(fields):
        if field.id not in before:
            raise InvalidInputError(
                f"column {name!r} cannot be in the primary key: {reason}, and pylance could not "
                "read the table; change the column, or remove the metadata "
                f"{PRIMARY_KEY}"
            )


def _wrong_keys(fields: Collection[pb.Field]) -> Iterator[tuple[pb.Field, str, str]]:
    """Yield each field that cannot be in a primary key but is: the field, its path, the reason."""
    by_id = {field.id: field for field in fields}
    parents = {field.parent_id for field in fields}
    for field in fields:
        if not field.unenforced_primary_key:
            continue
        path = [field]
        # A path that leads back to itself is refused elsewhere.
        while path[0].parent_id in by_id and len(path) <= len(by_id):
            path.insert(0, by_id[path[0].parent_id])
        name = ".".join(node.name for node in path)
        nullable = next((node.name for node in path if node.nullable), None)
        if field.id in parents:
            yield field, name, "it has fields below it"
        elif nullable is not None:
            yield field, name, f"field {nullable!r} is nullable"
        elif any(node.logical_type != "struct" for node in path[:-1]):
            yield field, name, "it is in a list or a map"
