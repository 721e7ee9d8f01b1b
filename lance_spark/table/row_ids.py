"""Stable row ids and versions of rows, as fragments get them when they are committed.

| field of `DataFragment` | message | what a commit of n new rows writes |
| --- | --- | --- |
| `inline_row_ids` | `RowIdSequence` | one range: `next_row_id` to `next_row_id + n` |
| `inline_created_at_versions` | `RowDatasetVersionSequence` | one run: rows 0 to n, the new version |
| `inline_last_updated_at_versions` | `RowDatasetVersionSequence` | the same |

Only tables with feature flag 2 (stable row ids) have them, and there every fragment does.
"""

from __future__ import annotations

from lance_spark.proto import rowids_pb2, table_pb2


def assign(fragment: table_pb2.DataFragment, next_row_id: int, version: int) -> int:
    """Give the rows of a new fragment their ids and versions.

    Parameters
    ----------
    fragment : table_pb2.DataFragment
        Changed.
    next_row_id : int
        The id of its first row.
    version : int
        The version that the fragment is committed in.

    Returns
    -------
    int
        The id that the row after them gets.
    """
    rows = fragment.physical_rows
    ids = rowids_pb2.RowIdSequence(segments=[_range(next_row_id, next_row_id + rows)])
    run = rowids_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
    versions = rowids_pb2.RowDatasetVersionSequence(runs=[run]).SerializeToString()
    fragment.inline_row_ids = ids.SerializeToString()
    fragment.inline_created_at_versions = versions
    fragment.inline_last_updated_at_versions = versions
    return next_row_id + rows


def _range(start: int, end: int) -> rowids_pb2.U64Segment:
    return rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=start, end=end))
