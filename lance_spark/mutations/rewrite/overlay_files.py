"""Overlay files that tasks write: what an update can store in them, and the operation of them all.

An overlay file has the new values of the rows that change, and of no other rows. It cannot say
whether a struct is null, because the data files below it decide this: the children of structs are
its cells (`lance_spark.scan.fragment.assemble`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lance_spark.errors import InvalidInputError, UnsupportedError
from lance_spark.file.blobs.fields import has_blobs
from lance_spark.file.schema.field import Field
from lance_spark.mutations.rewrite.writers import NewFile
from lance_spark.proto import transaction_pb2
from lance_spark.runner import check_once
from lance_spark.scan.fragment.assemble import files_of
from lance_spark.table.fragments import files
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.operations.columns import DataOverlay


@dataclass(frozen=True, slots=True)
class OverlayFile(NewFile):
    """The overlay file of a fragment.

    - `rows`: Offsets of the rows that it covers, as a Roaring bitmap.
    """

    rows: bytes
    num_rows: int


def check_overlaid_fields(table: OpenTable, fields: Iterable[Field]) -> None:
    """Raise an error if overlays cannot have new values of top-level fields.

    Raises UnsupportedError.
    """
    name = table.store.display
    if table.manifest.data_storage_version == files.LEGACY:
        raise UnsupportedError(
            f'{name}: mode "overlay" needs data files of version 2.0 or later; use mode "rows"'
        )
    for field in fields:
        if has_blobs(field):
            raise UnsupportedError(
                f'{name}: blobs of column {field.name!r} cannot be set in mode "overlay"; use mode '
                '"rows"'
            )
        if any(node.is_packed for node in field.walk()):
            # pylance looks for overlays of the children, and reads the old values.
            raise UnsupportedError(
                f"{name}: column {field.name!r} has a packed struct, whose new values pylance does "
                'not read from an overlay; use mode "rows" or "columns"'
            )
        number = next((f.id for f in table.manifest.fragments if _is_reordered(field, f)), None)
        if number is not None:
            # pylance would give a field the new values of another field.
            raise UnsupportedError(
                f"{name}: column {field.name!r} has fields that are in different data files of "
                f"fragment {number}, or in none, after a cast or an append without them; pylance "
                'does not read new values from an overlay then; use mode "rows" or "columns"'
            )
        if any(node.logical_type == "struct" and not node.children for node in field.walk()):
            raise UnsupportedError(
                f"{name}: column {field.name!r} has a struct without fields, which an overlay "
                'cannot store; use mode "rows"'
            )


def _is_reordered(field: Field, fragment: Fragment) -> bool:
    """Return whether the data files of a fragment have fields of a struct in another order.

    The order is that of the first file with a leaf of the field; fields without a file are last.
    pylance puts the fields of a struct together in this order, and applies overlays by their
    places.
    """
    if not field.children:
        return False
    file_of = files_of(fragment)
    for node in field.walk():
        if node.logical_type != "struct":
            continue
        held = [file_of.keys() & child.leaf_ids for child in node.children]
        last = len(fragment.files)
        firsts = [min((file_of[number] for number in leaves), default=last) for leaves in held]
        if firsts != sorted(firsts):
            return True
    return False


def has_structs(field: Field) -> bool:
    """Return whether the cells of a top-level field are children of a struct."""
    return field.logical_type == "struct" and not field.is_packed


def check_null_structs(field: Field, old: pa.Array, new: pa.Array) -> None:
    """Raise an error if a struct would become null, or would no longer be null.

    - `field`: A field of the table.
    - `old`, `new`: Its values in the same rows.

    Raises InvalidInputError.
    """
    if not has_structs(field):
        return
    if not old.is_null().equals(new.is_null()):
        raise InvalidInputError(
            f'column {field.name!r}: mode "overlay" cannot change whether a struct is null; select '
            "rows in which it is not null, and set it to values that are not null, or use mode "
            '"rows"'
        )
    # `flatten` makes children null where the struct is null.
    olds, news = old.flatten(), new.flatten()
    for child, before, after in zip(field.children, olds, news, strict=True):
        check_null_structs(child, before, after)


def overlay_operation(table: OpenTable, overlays: Sequence[OverlayFile]) -> DataOverlay:
    """Return the operation that makes overlay files part of the table.

    - `overlays`: From all tasks.

    Raises InvalidInputError: two files are of one fragment.
    """
    check_once(table, (overlay.fragment_id for overlay in overlays))
    groups = []
    for overlay in overlays:
        group = transaction_pb2.Transaction.DataOverlayGroup(fragment_id=overlay.fragment_id)
        group.overlays.add(data_file=overlay.file.to_proto(), shared_offset_bitmap=overlay.rows)
        groups.append(group)
    return DataOverlay(tuple(groups), exclusive=True)
