"""Fields of an older version, with the children that a change feed has.

| field of the feed | what is read from an older version |
| --- | --- |
| all versions in between have its id | the field with this id, also under another name |
| another field of its name, which later versions lack | that field, if it has the same type |
| neither exists | null |

A field id alone does not identify a field: if no file has the values of a dropped column, the next
new column gets its id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import count

from lance_spark.file.schema.field import MAX_FIELD_ID, Field
from lance_spark.table.manifest.manifest import Manifest


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
