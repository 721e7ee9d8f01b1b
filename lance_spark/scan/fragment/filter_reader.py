"""The reader of the columns that filters need, which decides the rows that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.levels import BoolArray
from lance_spark.errors import EvaluationError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.column_reader import ColumnReader
from lance_spark.scan.fragment.fragment_files import FragmentFiles
from lance_spark.scan.fragment.selection import FilterResult
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import (
    Condition,
    candidate_ranges,
    intersection,
    matching,
)

#: If fewer than one row in so many is live, only live rows are read; otherwise all rows are.
_SPARSE = 16


class FilterReader:
    """Evaluates filters on rows of a fragment.

    Parameters
    ----------
    files : FragmentFiles
    filters : sequence of Condition
        At least one.
    metrics : ScanMetrics

    Attributes
    ----------
    columns : ColumnReader
        Reads the columns of the filters.
    """

    def __init__(
        self, files: FragmentFiles, filters: Sequence[Condition], metrics: ScanMetrics
    ) -> None:
        schema = Schema.of_paths(path for condition in filters for path in condition.paths)
        self.columns = ColumnReader(files, schema)
        self._files = files
        self._filters = tuple(filters)
        self._metrics = metrics

    def candidates(self, rows: range) -> list[range]:
        """Return the parts of a range that page statistics do not rule out."""
        # One row decides for all if no file holds a column of the filters. A manifest of some bytes
        # can claim 2^32 such rows.
        if rows and self.columns.is_all_null:
            return [rows] if matching(self._filters, self.columns.read(rows[:1])).any() else []
        ranges = [rows]
        for condition in self._filters:
            possible = condition.candidates(self._candidate_ranges)
            if possible is not None:
                ranges = intersection(ranges, possible)
        return ranges

    def apply(
        self, rows: range, live: BoolArray | None
    ) -> tuple[BoolArray | None, FilterResult | None]:
        """Evaluate the filters on some rows.

        Parameters
        ----------
        rows : range
        live : bool array or None
            Which of the rows are not deleted; None if all are live.

        Returns
        -------
        bool array or None
            Which rows are live and meet the filters; None if all do.
        FilterResult or None
            The columns that were read; None if no row is live.
        """
        if live is None:
            num_live = len(rows)
        else:
            num_live = int(np.count_nonzero(live))
            if not num_live:
                return live, None
            # Blobs of deleted rows may be gone, and are not read.
            if num_live * _SPARSE < len(rows) or self.columns.has_blobs:
                return self._apply_to_live(rows, live)
        result = FilterResult(rows, self.columns.read(rows))
        try:
            matches = matching(self._filters, result.batch)
        except EvaluationError:
            if live is None:
                raise
            # A deleted row may have caused the error.
            matches = np.zeros(len(rows), np.bool_)
            matches[live] = matching(self._filters, result.batch.filter(pa.array(live)))
        if live is not None:
            matches &= live
        count = int(np.count_nonzero(matches))
        self._metrics.rows_filtered += num_live - count
        return (None if count == len(rows) else matches), result

    def _apply_to_live(self, rows: range, live: BoolArray) -> tuple[BoolArray, FilterResult]:
        indices = np.flatnonzero(live)
        result = FilterResult(indices + rows.start, self.columns.read(indices + rows.start))
        matches = matching(self._filters, result.batch)
        self._metrics.rows_filtered += len(indices) - int(np.count_nonzero(matches))
        selected = np.zeros(len(rows), np.bool_)
        selected[indices] = matches
        return selected, result

    def _candidate_ranges(self, field: Field, op: str, value: Any) -> list[range] | None:
        number, overlays = self._files.file_of.get(field.id), self._files.overlays
        # Statistics of a data file do not hold for values of overlays.
        if number is None or (overlays is not None and overlays.cover(field)):
            return None
        return candidate_ranges(self._files.reader(number), field, op, value)
