"""Blobs of some rows as files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.scan.blobs.file import BlobFile
from lance_spark.scan.blobs.loader import EXTERNAL, BlobDescriptors, BlobLoader
from lance_spark.scan.fragment.reader import FragmentReader
from lance_spark.scan.positions import (
    Numbers,
    by_fragment,
    live_to_physical,
    parse_numbers,
    parse_positions,
    parse_row_ids,
)
from lance_spark.scan.take import RowFinder
from lance_spark.table.blob_dataset import check_columns
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.addresses import OFFSET_BITS


def take_blobs(
    table: OpenTable,
    fragments: Sequence[Fragment],
    column: str,
    rows: Mapping[str, Any],
    buffer_size: int,
    finder: RowFinder,
) -> list[BlobFile | None]:
    """Return the blobs of some rows; see `Dataset.take_blobs`.

    Parameters
    ----------
    table : OpenTable
    fragments : sequence of Fragment
        The table's, with their rows counted.
    column : str
    rows : mapping
        ``ids``, ``addresses`` and ``indices``, of which one is not None.
    buffer_size : int
    finder : RowFinder
        Of the same version.
    """
    given = [name for name, value in rows.items() if value is not None]
    if len(given) != 1:
        raise InvalidInputError(f"give one of ids, addresses and indices, not {len(given)}")
    if buffer_size < 0:
        raise InvalidInputError(f"buffer_size must not be negative, but is {buffer_size}")
    schema = table.schema.select([column])
    check_columns(table.manifest, schema.fields)
    leaf = table.schema.field(column)
    if not leaf.is_blob:
        raise InvalidInputError(f"column {column!r} is no blob column, but {leaf.logical_type}")
    version = table.manifest.data_storage_version
    if version < (2, 0):
        raise UnsupportedFeatureError(
            f"column {column!r}: files of version 0.1 store blobs as any other binary; read the column"
        )
    schema = handled(schema, Handling.DESCRIPTIONS, version)
    wanted = _numbers(table, fragments, given[0], rows[given[0]], finder)
    unique, inverse = np.unique(wanted, return_inverse=True)
    found: list[tuple[BlobLoader, BlobDescriptors, int]] = []
    for fragment, physical in _physical(table, fragments, given[0], unique):
        reader = FragmentReader(table.paths, fragment, schema)
        try:
            loader, places = reader.blob_places(physical)
        finally:
            reader.close()
        found += [(loader, places, at) for at in range(len(physical))]
    return [_file(found[at], buffer_size) for at in inverse.tolist()]


def _file(blob: tuple[BlobLoader, BlobDescriptors, int], buffer_size: int) -> BlobFile | None:
    loader, places, at = blob
    if not places.live[at]:
        return None
    size = int(places.sizes[at])
    unknown = places.kinds[at] == EXTERNAL and not size
    return BlobFile(partial(loader.open, places, at), None if unknown else size, buffer_size)


def _numbers(
    table: OpenTable, fragments: Sequence[Fragment], kind: str, given: Any, finder: RowFinder
) -> Numbers:
    if kind == "indices":
        return parse_positions(given, sum(fragment.num_rows for fragment in fragments))
    if kind == "ids" and table.manifest.flags.stable_row_ids:
        ids = parse_row_ids(given)
        found, addresses = finder.find(ids)
        if not found.all():
            missing = int(ids[~found][0])
            raise InvalidInputError(f"{table.store.display}: no row has the id {missing}")
        return addresses.astype(np.int64)
    return parse_numbers(given, kind)


def _physical(
    table: OpenTable, fragments: Sequence[Fragment], kind: str, wanted: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    if kind == "indices":
        for fragment, rows in by_fragment(fragments, wanted):
            reader = FragmentReader(table.paths, fragment, table.schema.select([]))
            yield fragment, live_to_physical(rows, reader.deleted())
        return
    by_id = {fragment.id: fragment for fragment in fragments}
    holders = wanted >> OFFSET_BITS
    for number in np.unique(holders).tolist():
        offsets = wanted[holders == number] & ((1 << OFFSET_BITS) - 1)
        holder = by_id.get(number)
        if holder is None or int(offsets.max()) >= holder.physical_rows:
            raise InvalidInputError(
                f"{table.store.display}: there is no row {int(wanted[holders == number].max())}: fragment {number} "
                f"has {'no rows' if holder is None else f'{holder.physical_rows} rows'}"
            )
        reader = FragmentReader(table.paths, holder, table.schema.select([]))
        gone = np.intersect1d(offsets, reader.deleted())
        if len(gone):
            raise InvalidInputError(
                f"{table.store.display}: row {(number << OFFSET_BITS) + int(gone[0])} is deleted"
            )
        yield holder, offsets
