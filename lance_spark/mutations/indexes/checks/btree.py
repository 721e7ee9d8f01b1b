"""Checks a BTREE index: its rows, their order, and its pages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.indexes.registry import TYPES
from lance_spark.mutations.indexes.checks.rows import (
    ColumnCheck,
    CoveredRows,
    Findings,
    differ,
    flags,
    ordered,
    shown,
)
from lance_spark.scan.indexes.btree import DATA_FILE, IDS, VALUES, BTreePages, open_data, read_pages
from lance_spark.scan.indexes.files import IndexFiles, named


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    pages = read_pages(files)
    if pages is None:
        raise UnsupportedFeatureError(
            f"index {files.segment.name!r}: its files have a layout that cannot be checked"
        )
    with open_data(files, pages.files) as file:
        fields = [named(file, VALUES), named(file, IDS, pa.uint64())]
        values, row_keys = file.read(fields, range(pages.num_rows))
        name = file.source.name
    if values.type != rows.values.type:
        raise CorruptFileError(
            f"{name}: the values are {values.type}, the column is {rows.values.type}; rebuild the "
            "index"
        )
    if row_keys.null_count:
        raise CorruptFileError(f"{name}: {IDS} must not be null; rebuild the index")
    _check_rows(values, row_keys, rows, findings)
    _check_order(values, findings)
    _check_pages(values, pages, findings)


def _check_rows(
    values: pa.Array, row_keys: pa.Array, rows: CoveredRows, findings: Findings
) -> None:
    position, is_live = rows.find(row_keys.to_numpy())
    findings.stale += int(np.count_nonzero(~is_live))
    live = np.flatnonzero(is_live)
    position = position[live]
    count = np.bincount(position, minlength=len(rows))
    missing, repeated = np.flatnonzero(count == 0), np.flatnonzero(count > 1)
    indices = pa.array(live)
    different = np.flatnonzero(differ(values.take(indices), rows.values.take(pa.array(position))))
    findings.missing += len(missing)
    findings.wrong += len(np.union1d(repeated, position[different]))
    findings.add(
        rows.problem(number, "the index does not have the row") for number in missing.tolist()
    )
    findings.add(
        rows.problem(int(position[number]), f"the index has {shown(values[int(live[number])])}")
        for number in different.tolist()
    )
    findings.add(
        rows.problem(number, f"the index has the row {count[number]} times")
        for number in repeated.tolist()
    )


def _check_order(values: pa.Array, findings: Findings) -> None:
    import pyarrow.compute as pc

    keys = ordered(values)
    is_null = flags(values.is_null())
    descends = flags(pc.less(keys[1:], keys[:-1])) | (is_null[1:] & ~is_null[:-1])
    places = np.flatnonzero(descends) + 1
    findings.wrong += len(places)
    findings.add(
        f"{DATA_FILE}: row {place} has {shown(values[place])}, which is less than "
        f"{shown(values[place - 1])} before it"
        for place in places.tolist()
    )


def _check_pages(values: pa.Array, pages: BTreePages, findings: Findings) -> None:
    first, last = pages.bounds[:-1], pages.bounds[1:] - 1
    for name, column, places in (("min", pages.low, first), ("max", pages.high, last)):
        expected = values.take(pa.array(places))
        wrong = np.flatnonzero(differ(column, expected))
        findings.wrong += len(wrong)
        findings.add(
            f"page {page}: {name} is {shown(column[page])}, but its values have "
            f"{shown(expected[page])}"
            for page in wrong.tolist()
        )
    nulls = _nulls(values, pages)
    wrong = np.flatnonzero(pages.nulls != nulls)
    findings.wrong += len(wrong)
    findings.add(
        f"page {page}: null_count is {pages.nulls[page]}, but it has {nulls[page]} nulls"
        for page in wrong.tolist()
    )


def _nulls(values: pa.Array, pages: BTreePages) -> RowNumbers:
    totals = np.append(0, np.cumsum(flags(values.is_null()), dtype=np.int64))
    counts: RowNumbers = np.diff(totals[pages.bounds])
    return counts


CHECK = ColumnCheck(check, versions=TYPES["BTREE"].versions)
