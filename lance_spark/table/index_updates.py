"""What becomes of the fragments that indexes cover when an update moves rows, or changes columns where they are.

An index names the fragments that it has rows of (`fragment_bitmap`). Readers take from it what it finds there, and scan the
others. A fragment whose values changed where they are has to be taken out. One that rows moved to can be put in, if the index
finds them by ids that they kept, their values did not change, and it covered all the fragments that they come from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyroaring import BitMap

from lance_spark.errors import CorruptTableError
from lance_spark.proto import table_pb2


def uncover(
    indices: Iterable[table_pb2.IndexMetadata],
    fragment_ids: Iterable[int],
    field_ids: Collection[int],
) -> None:
    """Take fragments out of the indexes on some fields.

    Parameters
    ----------
    indices : iterable of table_pb2.IndexMetadata
        Changed.
    fragment_ids : iterable of int
        Fragments whose values changed where they are.
    field_ids : collection of int
        The fields that changed.

    Raises
    ------
    CorruptTableError
    """
    gone = BitMap(fragment_ids)
    for index in indices:
        if _has(index, field_ids) and index.fragment_bitmap:
            index.fragment_bitmap = (_covered(index) - gone).serialize()


def cover(
    indices: Iterable[table_pb2.IndexMetadata],
    new_ids: Iterable[int],
    origin_ids: Iterable[int],
    field_ids: Collection[int],
) -> None:
    """Put fragments into the indexes that find their rows already.

    Parameters
    ----------
    indices : iterable of table_pb2.IndexMetadata
        Changed.
    new_ids : iterable of int
        Fragments all of whose rows come from others, and kept their ids.
    origin_ids : iterable of int
        Those others.
    field_ids : collection of int
        Fields whose values changed.

    Raises
    ------
    CorruptTableError
    """
    new, origins = BitMap(new_ids), BitMap(origin_ids)
    if not new:
        return
    for index in indices:
        # Indexes without fields are the table's own, about something else than values.
        if not index.fields or _has(index, field_ids) or not index.fragment_bitmap:
            continue
        covered = _covered(index)
        if origins <= covered:
            index.fragment_bitmap = (covered | new).serialize()


def _has(index: table_pb2.IndexMetadata, field_ids: Collection[int]) -> bool:
    return any(number in field_ids for number in (*index.fields, *index.covering_fields))


def _covered(index: table_pb2.IndexMetadata) -> BitMap:
    try:
        return BitMap.deserialize(index.fragment_bitmap)
    except ValueError as error:
        raise CorruptTableError(
            f"index {index.name!r}: no readable bitmap of its fragments: {error}"
        ) from None
