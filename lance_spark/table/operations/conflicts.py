"""The conflict matrix: the outcome for an operation of another one that was committed first.

The matrix depends on the names of the two operations alone. Some operations also compare fragments,
fields or keys in their `conflict`, and use the matrix for the remaining cases.
docs/reference/conflicts.md shows the matrix, and the outcome of each pair of changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Conflict(Enum):
    """The outcome for an operation of another one that was committed first."""

    COMPATIBLE = "compatible"
    REBASE = "rebase"
    RETRYABLE = "retryable"
    INCOMPATIBLE = "incompatible"


_OUTCOMES = {
    "ok": Conflict.COMPATIBLE,
    "rb": Conflict.REBASE,
    "rp": Conflict.RETRYABLE,
    "no": Conflict.INCOMPATIBLE,
}
# A row is the operation to be committed; a column the one committed before it, in the same order.
# ok: compatible, rb: rebase, rp: replan (retryable), no: incompatible.
_MATRIX = """
                      1  2  3  4  5  6  7  8  9  10 11 12 13 14 15 16
append                ok ok no ok ok ok no ok ok ok ok ok no ok ok ok
delete                ok rb no ok rp rp no ok rb ok ok rp no ok ok ok
overwrite             ok ok rp ok ok ok ok ok ok ok ok ok no ok ok ok
create_index          ok ok no rp rp rb no ok rb ok ok rp no ok ok ok
rewrite               ok rp no rp rp rp no ok rp ok ok rp ok ok ok rp
merge                 rp rp no ok rp rp no ok rp no ok rp no ok ok rp
restore               ok ok ok ok ok ok ok ok ok ok ok ok no ok ok ok
reserve_fragments     ok ok no ok ok ok no ok ok ok ok ok ok ok ok ok
update                ok rb no ok rp rp no ok rb ok ok rp ok ok ok rp
project               ok ok no ok ok rp no ok ok rp ok ok no ok ok ok
update_config         ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
data_replacement      ok ok no ok ok rp no ok ok ok ok ok no ok ok ok
update_mem_wal_state  no no no ok ok no no ok no no ok no ok no ok no
clone                 ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
update_bases          ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok ok
data_overlay          ok ok no ok ok rp no ok ok ok ok ok no ok ok ok
"""
_ROWS = [line.split() for line in _MATRIX.strip().splitlines()[1:]]
#: Names of operations, as in `Transaction.operation`.
OPERATION_NAMES = tuple(row[0] for row in _ROWS)
#: By name of the operation to be committed, and name of the operation committed before it.
MATRIX: Mapping[str, Mapping[str, Conflict]] = {
    name: dict(zip(OPERATION_NAMES, (_OUTCOMES[cell] for cell in cells), strict=True))
    for name, *cells in _ROWS
}


def conflict_of_names(name: str, committed: str) -> Conflict:
    """Return the outcome by the names of an operation and of one committed before it.

    An unknown operation is retryable. This release does not know what it changed, but a change
    that is planned again reads the version that the unknown operation made.
    """
    return MATRIX.get(name, {}).get(committed, Conflict.RETRYABLE)
