"""Whether what was computed from the rows of a fragment is right for the fragment as a later
version has it.

| the later version has | what was computed is kept |
| --- | --- |
| other data files, or overlays | no |
| more rows deleted | yes: what was computed for them is never read |
| rows that were deleted, as a restored version brings them back | no: nothing was computed for them |
"""

from __future__ import annotations

import numpy as np

from lance_spark.errors import StorageError
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions


def values_still_valid(paths: TablePaths, of: Fragment, now: Fragment) -> bool:
    """Tell whether values of the live rows of a fragment are those of all rows that are live in a
    later version.

    Parameters
    ----------
    paths : TablePaths
        Of the table.
    of, now : Fragment
        As it was when the values were computed, and as it is.

    Raises
    ------
    CorruptFileError
        A deletion file is broken.
    """
    if _values_of(of) != _values_of(now):
        return False
    if of.deletion_file is None or of.deletion_file == now.deletion_file:
        return True
    try:
        return bool(np.isin(read_deletions(paths, of), read_deletions(paths, now)).all())
    except StorageError:
        # The older file can have been cleaned up.
        return False


def _values_of(fragment: Fragment) -> bytes:
    """Return what tells the values of a fragment's rows, whichever of them are deleted."""
    proto = fragment.to_proto()
    kept = table_pb2.DataFragment(files=proto.files, overlays=proto.overlays)
    data: bytes = kept.SerializeToString(deterministic=True)
    return data
