"""Fields of an older version that mean the same columns in a newer version."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from lance_spark.change_feed.reverted_versions import OlderVersions
from lance_spark.file.schema.field import MAX_FIELD_ID, Field
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.metadata import Restore

# --------------------------------------------------------------------------------------------------
# Fields of an older version, with the children that a change feed has.
#
# | field of the feed | what is read from an older version |
# | --- | --- |
# | all versions in between have its id | the field with this id, also under another name |
# | another field of its name, which later versions lack | that field, if it has the same type |
# | neither exists | null |
#
# A field id alone does not identify a field: if no file has the values of a dropped column, the
# next new column gets its id.


def field_ids(manifest: Manifest) -> frozenset[int]:
    """Return the ids of all fields of a version."""
    return frozenset(field.id for field in manifest.message.fields)


def same_field(
    feed_field: Field, fields: Sequence[Field], same_ids: Collection[int]
) -> Field | None:
    """Return the field of an older version that is a field of the feed; None if it lacks it.

    - `fields`: The columns of the older version, or the children of one of its fields.
    - `same_ids`: Ids of the fields that this version, the version of the feed, and all versions
      between them have.
    """
    if feed_field.id in same_ids:
        return next((field for field in fields if field.id == feed_field.id), None)
    # The id of a column that was cast, dropped and added again, or overwritten.
    return next(
        (field for field in fields if field.name == feed_field.name and field.id not in same_ids),
        None,
    )


def with_children_of(feed_field: Field, field: Field, same_ids: Collection[int]) -> Field:
    """Return a field of an older version, with the names and children that it has in the feed.

    Its type differs from that of `feed_field` only if the type of the field, or of a field below
    it, was changed.

    - `field`: The field of the older version.
    - `same_ids`: See `same_field`.
    """
    return _with_children_of(feed_field, field, same_ids, count(MAX_FIELD_ID, -1))


def renamed_field(
    field: Field, newest: Field, same_ids: Collection[int], *, is_entry: bool = False
) -> Field | None:
    """Return a field of an older version that has lost its name to another field; None if none has.

    - `field`, `newest`: A field of the older version, and the field of the newest version with its
      name.
    - `same_ids`: Ids of the fields that both versions, and all versions between them, have.
    - `is_entry`: Whether it is the struct of the entries of a map.
    """
    if field.id != newest.id:
        return field if field.id in same_ids else None
    if newest.logical_type == "struct" and not is_entry:
        by_name = {child.name: child for child in newest.children}
        pairs = [(old, by_name[old.name]) for old in field.children if old.name in by_name]
    else:
        # Names of items, entries, keys and values mean nothing: writers choose them.
        pairs = list(zip(field.children, newest.children, strict=False))
    is_map = newest.logical_type == "map"
    renamed = (renamed_field(*pair, same_ids, is_entry=is_map) for pair in pairs)
    return next((child for child in renamed if child is not None), None)


def _with_children_of(
    feed_field: Field,
    field: Field,
    same_ids: Collection[int],
    absent_ids: Iterator[int],
    *,
    is_entry: bool = False,
) -> Field:
    is_struct = field.logical_type == "struct" and not is_entry
    # In a damaged schema, a list may have no item, or two.
    is_similar = is_struct or len(field.children) == len(feed_field.children)
    if field.logical_type != feed_field.logical_type or not is_similar:
        return field
    older: Sequence[Field | None]
    if is_struct:
        older = [same_field(child, field.children, same_ids) for child in feed_field.children]
    else:
        # Names of items, entries, keys and values mean nothing: writers choose them.
        older = field.children
    children = tuple(
        _absent(feed_child, absent_ids)
        if child is None
        else _with_children_of(
            feed_child, child, same_ids, absent_ids, is_entry=field.logical_type == "map"
        )
        for feed_child, child in zip(feed_field.children, older, strict=True)
    )
    selected = {child.id for child in children}
    unread = tuple(child for child in field.children if child.id not in selected)
    base = feed_field if field.id == feed_field.id else field
    return replace(base, name=feed_field.name, children=children, unread=unread)


def _absent(feed_field: Field, absent_ids: Iterator[int]) -> Field:
    """Return a field with ids that no file has, which is read as null."""
    children = tuple(_absent(child, absent_ids) for child in feed_field.children)
    return replace(feed_field, id=next(absent_ids), nullable=True, children=children)


# --------------------------------------------------------------------------------------------------
# Field ids that mean the same columns in a version and in the version before it.
#
# | operation of the version | ids that mean the same |
# | --- | --- |
# | overwrite, clone, unknown | none: other columns may have got them |
# | restore | those that all versions since the restored one have |
# | any other | all that both versions have |
#
# So a column that was renamed is known in the versions before a restore, too, under each of its
# names.

#: Operations after which field ids may mean other columns.
_RESETS_FIELD_IDS = frozenset({"overwrite", "clone"})


def kept_ids(
    manifest: Manifest, operation: Operation | None, taken_back: OlderVersions | None
) -> frozenset[int]:
    """Return the ids of a version that mean the same columns in the version before it.

    The version before may lack some of them.

    - `manifest`: The version.
    - `operation`: Its operation; None if it is not recorded.
    - `taken_back`: The versions that a restore takes back (`versions_taken_back`). If they are
      unknown, the restore keeps no id.
    """
    if taken_back is None:
        return frozenset()
    kept: dict[int, frozenset[int]] = {}
    for older, older_operation in (*taken_back, (manifest, operation)):
        if isinstance(older_operation, Restore):
            kept[older.version] = _of_restore(older, older_operation, kept)
        else:
            kept[older.version] = _of_plain(older, older_operation)
    return kept[manifest.version]


def _of_plain(manifest: Manifest, operation: Operation | None) -> frozenset[int]:
    """Return the ids that a version keeps if its operation is no restore."""
    if operation is None or operation.name in _RESETS_FIELD_IDS:
        return frozenset()
    return field_ids(manifest)


def _of_restore(
    manifest: Manifest, restore: Restore, kept: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    """Return the ids that a restore keeps; `kept` has the ids of the versions between."""
    ids = field_ids(manifest)
    for version in range(restore.version + 1, manifest.version):
        ids &= kept[version]
    return ids
