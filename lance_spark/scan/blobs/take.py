"""The take of blobs: the blobs of some rows as file objects."""

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
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.manifest.repairs import check_columns
from lance_spark.table.open import OpenTable
from lance_spark.table.rows.index import OFFSET_BITS


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
        Has the keys ``ids``, ``addresses`` and ``indices``; one value is not None.
    buffer_size : int
    finder : RowFinder
        Of the same version.
    """
    keys = [name for name, value in rows.items() if value is not None]
    if len(keys) != 1:
        raise InvalidInputError(f"give one of ids, addresses and indices, not {len(keys)}")
    if buffer_size < 0:
        raise InvalidInputError(f"buffer_size must not be negative, but is {buffer_size}")
    schema = table.schema.select([column])
    check_columns(table.manifest, schema.fields)
    leaf = table.schema.field(column)
    if not leaf.is_blob:
        raise InvalidInputError(
            f"column {column!r} is not a blob column: its type is {leaf.logical_type}"
        )
    version = table.manifest.data_storage_version
    if version < (2, 0):
        raise UnsupportedFeatureError(
            f"column {column!r}: files of version 0.1 store blobs as any other binary value; read "
            "the column instead"
        )
    schema = handled(schema, Handling.DESCRIPTIONS, version)
    numbers = _parse_rows(table, fragments, keys[0], rows[keys[0]], finder)
    unique, inverse = np.unique(numbers, return_inverse=True)
    blobs: list[tuple[BlobLoader, BlobDescriptors, int]] = []
    for fragment, offsets in _offsets(table, fragments, keys[0], unique):
        reader = FragmentReader(table.paths, fragment, schema)
        try:
            loader, descriptors = reader.blob_descriptors(offsets)
        finally:
            reader.close()
        blobs += [(loader, descriptors, index) for index in range(len(offsets))]
    return [_file(*blobs[int(number)], buffer_size) for number in inverse.tolist()]


def _file(
    loader: BlobLoader, descriptors: BlobDescriptors, index: int, buffer_size: int
) -> BlobFile | None:
    if not descriptors.live[index]:
        return None
    size = int(descriptors.sizes[index])
    is_whole_object = descriptors.storage_modes[index] == EXTERNAL and not size
    return BlobFile(
        partial(loader.open, descriptors, index), None if is_whole_object else size, buffer_size
    )


def _parse_rows(
    table: OpenTable, fragments: Sequence[Fragment], key: str, numbers: Any, finder: RowFinder
) -> Numbers:
    """Return positions for the key "indices", and addresses for the other keys."""
    if key == "indices":
        return parse_positions(numbers, sum(fragment.num_rows for fragment in fragments))
    if key == "ids" and table.manifest.flags.stable_row_ids:
        ids = parse_row_ids(numbers)
        exists, addresses = finder.find(ids)
        if not exists.all():
            missing = int(ids[~exists][0])
            raise InvalidInputError(f"{table.store.display}: no row has the id {missing}")
        return addresses.astype(np.int64)
    return parse_numbers(numbers, key)


def _offsets(
    table: OpenTable, fragments: Sequence[Fragment], key: str, numbers: Numbers
) -> Iterator[tuple[Fragment, Numbers]]:
    """Yield each fragment that holds some of the rows, with their offsets."""
    if key == "indices":
        for fragment, rows in by_fragment(fragments, numbers):
            reader = FragmentReader(table.paths, fragment, table.schema.select([]))
            yield fragment, live_to_physical(rows, reader.deleted())
        return
    by_id = {fragment.id: fragment for fragment in fragments}
    holders = numbers >> OFFSET_BITS
    for fragment_id in np.unique(holders).tolist():
        addresses = numbers[holders == fragment_id]
        offsets = addresses & ((1 << OFFSET_BITS) - 1)
        holder = by_id.get(fragment_id)
        if holder is None or int(offsets.max()) >= holder.physical_rows:
            raise InvalidInputError(
                f"{table.store.display}: row {int(addresses.max())} not found: fragment "
                f"{fragment_id} has {'no' if holder is None else holder.physical_rows} rows"
            )
        reader = FragmentReader(table.paths, holder, table.schema.select([]))
        deleted = np.intersect1d(offsets, reader.deleted())
        if len(deleted):
            address = (fragment_id << OFFSET_BITS) + int(deleted[0])
            raise InvalidInputError(f"{table.store.display}: row {address} is deleted")
        yield holder, offsets
