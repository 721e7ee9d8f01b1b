"""Few rows of several fragments, decoded together.

Most of the cost of a row is the fixed cost per fragment: readers, a plan and the decoding of one
chunk. The files stay open in `OpenFiles`; see `small_fragments` for what can be read together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lance_spark.encoding.arrow_blocks import with_dictionaries
from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import LanceError
from lance_spark.file.multi_file import can_read_together
from lance_spark.file.open_files import OpenFiles
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment.column_reader import ColumnReader
from lance_spark.scan.fragment.fragment_files import FragmentFiles
from lance_spark.scan.fragment.row_meta import ROW_OFFSET, needs
from lance_spark.scan.fragment.small_fragments import (
    JoinedColumns,
    Opened,
    RunFiles,
    Whole,
    same_columns,
)
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.predicates.conditions import Condition, matching, top_fields
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.deletions import read_deletions

#: Most rows that are read together, and most fragments: all of their files are open at once.
_MAX_ROWS = 1024
_MAX_FRAGMENTS = 32


def read_scattered(
    paths: TablePaths,
    pieces: Sequence[tuple[Fragment, RowNumbers]],
    schema: Schema,
    open_files: OpenFiles,
    first_positions: Mapping[int, int],
    metrics: ScanMetrics,
) -> pa.RecordBatch | None:
    """Return rows of several fragments of a local store, one fragment after the other.

    - `pieces` (sequence of (Fragment, int64 array)): Physical rows, deleted rows included.
    - `first_positions`: Position of the first live row of a fragment in the table's order, if
      `schema` needs it.

    None if the rows cannot be read together, or if a file is damaged: a `FragmentReader` names it.
    """
    num_rows = sum(len(rows) for _, rows in pieces)
    if not 0 < len(pieces) <= _MAX_FRAGMENTS or num_rows > _MAX_ROWS:
        return None
    columns = JoinedColumns(schema.fields)
    first = pieces[0][0]
    if not all(
        columns.can_join(fragment) and same_columns(first, fragment) for fragment, _ in pieces
    ):
        return None
    numbers = columns.files(first)
    if numbers is None:
        return None
    counts = ScanMetrics()
    opened: list[FragmentFiles] = []
    try:
        members: list[Opened] = []
        for fragment, _ in pieces:
            first_position = first_positions.get(fragment.id)
            files = FragmentFiles(paths, fragment, open_files, first_position)
            opened.append(files)
            readers: dict[int, FileReader] = {}
            for number in numbers:
                reader = files.reader(number)
                if not isinstance(reader, FileReader) or not can_read_together(
                    members[0].files[number] if members else reader, reader
                ):
                    return None
                readers[number] = reader
            members.append(Opened(Whole(fragment, first_position), readers))
        if len(members) == 1:
            batch = ColumnReader(opened[0], schema).read(pieces[0][1])
        else:
            run = RunFiles(paths, members)
            starts = run.bounds.tolist()
            rows = [start + own for start, (_, own) in zip(starts, pieces, strict=False)]
            batch = ColumnReader(run, schema).read(np.concatenate(rows))
    except LanceError:
        return None
    finally:
        # Of a read that is repeated, nothing is counted.
        for files in opened:
            files.release(counts)
    metrics += counts
    return batch


def matching_rows(
    paths: TablePaths,
    pieces: Sequence[tuple[Fragment, RowNumbers]],
    schema: Schema,
    filters: Sequence[Condition],
    open_files: OpenFiles,
    metrics: ScanMetrics,
) -> pa.RecordBatch | None:
    """Return the live rows among few rows of a local store that meet all conditions.

    The columns of the conditions are read together with the others: a second read costs more than
    values of rows that the conditions leave out.

    - `pieces` (sequence of (Fragment, int64 array)): Physical rows of distinct fragments, in order.

    None if the rows cannot be read together, see `read_scattered`.
    """
    tested = top_fields(filters)
    fields = (*schema.fields, *(field for field in tested if field not in schema.fields))
    # A batch without columns does not keep its number of rows.
    if not schema.fields or not tested:
        return None
    if needs(fields, ROW_OFFSET) or any(field.has_json for field in fields):
        return None
    live = []
    for fragment, rows in pieces:
        deleted = read_deletions(paths, fragment)
        live.append((fragment, rows[~np.isin(rows, deleted)] if len(deleted) else rows))
    live = [(fragment, rows) for fragment, rows in live if len(rows)]
    counts = ScanMetrics(fragments_scanned=len(pieces), windows=1)
    batch = read_scattered(paths, live, replace(schema, fields=fields), open_files, {}, counts)
    if batch is None:
        return None
    # Several columns can have parts of one field.
    columns = [batch.column(fields.index(field)) for field in tested]
    names = [field.name for field in tested]
    matches = matching(filters, pa.RecordBatch.from_arrays(columns, names))
    count = int(np.count_nonzero(matches))
    counts.rows_filtered += len(matches) - count
    counts.windows_skipped += not count
    metrics += counts
    columns = batch.columns[: len(schema.fields)]
    result = pa.RecordBatch.from_arrays(
        columns, schema=with_dictionaries(schema.to_arrow(), columns)
    )
    return result if count == len(matches) else result.filter(pa.array(matches))
