"""Checks BITMAP and LABEL_LIST indexes: a set of rows for each value.

The rows of an index are pairs of a value and a row. They are compared with the pairs of the column.
Values are numbered, so that a pair is an integer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import CorruptFileError
from lance_spark.mutations.indexes.checks.rows import (
    MAX_PROBLEMS,
    CoveredRows,
    Findings,
    Flags,
    comparable,
    original,
    shown,
)
from lance_spark.scan.indexes import bitmap
from lance_spark.scan.indexes.files import IndexFiles

#: Sets that are read at once.
_BATCH_SETS = 4096
#: Pairs that are looked up at once, unless one set has more.
_BATCH_PAIRS = 1 << 20


class Pairs:
    """The pairs of a value and a row that an index must have.

    Parameters
    ----------
    files : IndexFiles
    rows : CoveredRows
    items : pa.Array
        The values of all rows.
    positions : int64 array
        The position of the row of each.
    of_lists : bool
        Whether a row may have several values.
    """

    def __init__(
        self,
        files: IndexFiles,
        rows: CoveredRows,
        items: pa.Array,
        positions: RowNumbers,
        *,
        of_lists: bool = False,
    ) -> None:
        keys = bitmap.read_keys(files)
        if keys.type != items.type:
            raise CorruptFileError(
                f"index {files.segment.name!r}: the values of {bitmap.FILE} are {keys.type}, those "
                f"of the column {items.type}; rebuild the index"
            )
        self._rows, self._dtype = rows, items.type
        self._count = max(len(rows), 1)
        values = pa.chunked_array([comparable(keys), comparable(items)]).combine_chunks()
        encoded = values.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.to_numpy().astype(np.int64)
        self._values = encoded.dictionary
        #: Number of NaN. In an index, NaNs of different bits are several values, and a list can
        #: have them all.
        self._nan = _code_of_nan(self._values, self._dtype) if of_lists else None
        #: Number of the value of each set.
        self._codes = codes[: len(keys)]
        self._expected = distinct(codes[len(keys) :] * self._count + positions)
        self._is_found = np.zeros(len(self._expected), np.bool_)
        self._is_wrong: Flags = np.zeros(len(rows), np.bool_)

    def check(self, files: IndexFiles, findings: Findings) -> None:
        """Compare the sets of the index with the pairs."""
        waiting: list[RowNumbers] = []
        for start in range(0, len(self._codes), _BATCH_SETS):
            codes = self._codes[start : start + _BATCH_SETS]
            numbers = np.arange(start, start + len(codes))
            for code, rows in zip(codes.tolist(), bitmap.read_sets(files, numbers), strict=True):
                positions, num_stale = self._rows.find_set(rows)
                findings.stale += num_stale
                waiting.append(code * self._count + positions)
                if sum(map(len, waiting)) > _BATCH_PAIRS:
                    self._note(np.concatenate(waiting), findings)
                    waiting = []
            self._note(np.concatenate([np.empty(0, np.int64), *waiting]), findings)
            waiting = []
        missing = self._expected[~self._is_found]
        # A row at another value is wrong, and not missing.
        missing = missing[~self._is_wrong[missing % self._count]]
        findings.wrong += int(np.count_nonzero(self._is_wrong))
        findings.missing += len(np.unique(missing % self._count))
        self._describe(missing, "the index does not have the row with", findings)

    def _note(self, pairs: RowNumbers, findings: Findings) -> None:
        """Note pairs that the index has."""
        pairs, counts = np.unique(pairs, return_counts=True)
        nearest = np.searchsorted(self._expected, pairs)
        nearest = np.minimum(nearest, max(len(self._expected) - 1, 0))
        is_right = np.zeros(len(pairs), np.bool_)
        if len(self._expected):
            is_right = self._expected[nearest] == pairs
        places = nearest[is_right]
        is_repeated = (counts[is_right] > 1) | self._is_found[places]
        if self._nan is not None:
            is_repeated &= pairs[is_right] // self._count != self._nan
        self._is_found[places] = True
        wrong, repeated = pairs[~is_right], pairs[is_right][is_repeated]
        for part in (wrong, repeated):
            self._is_wrong[part % self._count] = True
        self._describe(wrong, "the index has the row with", findings)
        self._describe(repeated, "the index has the row more than once with", findings)

    def _describe(self, pairs: RowNumbers, text: str, findings: Findings) -> None:
        findings.add(
            self._rows.problem(pair % self._count, f"{text} {self._shown(pair // self._count)}")
            for pair in pairs[:MAX_PROBLEMS].tolist()
        )

    def _shown(self, code: int) -> str:
        return shown(original(self._values[code : code + 1], self._dtype)[0])


def _code_of_nan(values: pa.Array, dtype: pa.DataType) -> int | None:
    """Return the number of NaN among distinct `comparable` values; None if there is none."""
    if not pat.is_floating(dtype):
        return None
    import pyarrow.compute as pc

    nan = comparable(pa.array(np.array([np.nan]).astype(dtype.to_pandas_dtype())))
    place: int = pc.index(values, nan[0]).as_py()
    return None if place < 0 else place
