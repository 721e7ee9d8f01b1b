"""Rows whose values overlays have replaced since an index was built.

The files of an index have the values of the version that it was built on. An overlay that was
committed later has other values for the rows that it covers. A search takes the rows of an index
without these rows, and evaluates these rows by their values in the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyroaring import BitMap

from lance_spark.file.schema.field import Field
from lance_spark.table.fragments.files import Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.rows.deletions import decode_rows


def value_fields(path: Sequence[Field]) -> frozenset[int]:
    """Return the ids of the fields whose values a column has.

    Parameters
    ----------
    path : sequence of Field
        The fields from the top-level field to the column.
    """
    return frozenset(node.id for node in path) | {node.id for node in path[-1].walk()}


def is_overlaid(fragment: Fragment, ids: Collection[int], since: int = 0) -> bool:
    """Return whether overlays of a fragment have new values of some fields.

    Parameters
    ----------
    ids : collection of int
        Ids of the fields.
    since : int
        The version whose values are known: its overlays do not count.
    """
    return fragment.has_overlays and any(_newer(fragment, ids, since))


def overlaid_rows(fragment: Fragment, ids: Collection[int], since: int = 0) -> BitMap:
    """Return the offsets of the rows that the overlays of `is_overlaid` cover.

    Raises
    ------
    CorruptTableError
        The rows of an overlay cannot be decoded.
    """
    rows = BitMap()
    if fragment.has_overlays:
        for overlay in _newer(fragment, ids, since):
            name = f"overlay {overlay.data_file.path}"
            for data in overlay.bitmaps:
                rows |= decode_rows(data, fragment.physical_rows, name)
    return rows


def _newer(fragment: Fragment, ids: Collection[int], since: int) -> list[Overlay]:
    wanted = set(ids)
    return [
        overlay
        for overlay in fragment.overlays
        # A version of 0 is not recorded.
        if not 0 < overlay.committed_version <= since
        and not wanted.isdisjoint(overlay.data_file.fields)
    ]
