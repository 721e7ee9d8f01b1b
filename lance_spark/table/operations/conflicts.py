"""The conflict matrix: what a committed operation means for one that is yet to be committed.

The matrix answers by the kinds of the two operations. Some operations look closer, at fragments,
fields or keys: their `conflict` says so, and asks the matrix for all else.
docs/reference/conflicts.md shows the matrix, and what happens to each pair of changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Conflict(Enum):
    """What a committed operation means for one that is yet to be committed."""

    COMPATIBLE = "compatible"
    REBASE = "rebase"
    RETRYABLE = "retryable"
    INCOMPATIBLE = "incompatible"


_ANSWERS = {
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
#: Kinds of operations, as `Transaction.operation` names them.
KINDS = tuple(row[0] for row in _ROWS)
#: By kind of the operation to be committed, and kind of the one committed before it.
MATRIX: Mapping[str, Mapping[str, Conflict]] = {
    kind: dict(zip(KINDS, (_ANSWERS[cell] for cell in cells), strict=True))
    for kind, *cells in _ROWS
}


def conflict_of_kinds(kind: str, committed: str) -> Conflict:
    """Return what a committed operation means, by the kinds of both.

    A kind that this release does not know is retryable: no client can say what it changed, and a
    change that is planned again reads the version that it made.
    """
    return MATRIX.get(kind, {}).get(committed, Conflict.RETRYABLE)
