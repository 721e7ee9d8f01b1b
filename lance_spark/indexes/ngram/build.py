"""How NGRAM indexes are built and merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pat
from pyroaring import BitMap64

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader
from lance_spark.indexes.address_map import AddressMap, of_one_file
from lance_spark.indexes.bitmap.build import KeyedFile, merge_keys
from lance_spark.indexes.builds import Builder, is_string
from lance_spark.indexes.checks import ColumnCheck, CoveredRows, Findings
from lance_spark.indexes.files import IndexFiles, SegmentWriter, named
from lance_spark.indexes.merges import KeptRows, Merging, SegmentSource
from lance_spark.indexes.ngram import files as ngram
from lance_spark.table.rows.addresses import OFFSET_BITS
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    ngram.write(segment, values, ids)


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    return True


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    layout = KeyedFile(ngram.FILE, ngram.TOKENS, ngram.POSTINGS, pa.uint32(), _union)
    merge_keys(ngram.create(segment), ngram.SCHEMA, sources, layout)


def _union(parts: Sequence[tuple[bytes, KeptRows | None]], name: str) -> bytes | None:
    union = BitMap64()
    for data, kept in parts:
        rows = ngram.decode_posting(data, name)
        union |= rows if kept is None else kept.of_bitmap(rows)
    return union.serialize() if union else None


BUILDER = Builder("NGRAM", _write, is_string, merging=Merging(_can_merge, _merge))


# --------------------------------------------------------------------------------------------------
# Checks NGRAM indexes: the rows of each trigram.

#: Trigrams that are read at once.
_BATCH_TRIGRAMS = 512


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises CorruptFileError, MissingFileError, StorageError.
    """
    if not (pat.is_string(rows.values.type) or pat.is_large_string(rows.values.type)):
        raise CorruptFileError(
            f"index {files.segment.name!r}: the column is {rows.values.type}, and has no texts; "
            "drop the index"
        )
    expected = ngram.postings_of(rows.values, rows.row_keys)
    trigrams = ngram.read_trigrams(files)
    possible = _known_rows(rows)
    missing, wrong = BitMap64(), BitMap64()
    for start in range(0, len(trigrams), _BATCH_TRIGRAMS):
        part = trigrams[start : start + _BATCH_TRIGRAMS]
        postings = ngram.read_postings(files, np.arange(start, start + len(part)))
        for trigram, posting in zip(part.tolist(), postings, strict=True):
            position, is_live = rows.find(_words(posting & possible))
            position = position[is_live]
            findings.stale += len(posting) - len(position)
            stored = BitMap64(np.sort(rows.row_keys[position]), optimize=False)
            expected_rows = expected.pop(trigram, BitMap64())
            lacking, surplus = expected_rows - stored, stored - expected_rows
            missing |= lacking
            wrong |= surplus
            _describe(rows, lacking, f"the index does not have {_shown(trigram)}", findings)
            _describe(rows, surplus, f"the index has {_shown(trigram)}", findings)
    for trigram, lacking in sorted(expected.items()):
        missing |= lacking
        _describe(rows, lacking, f"the index does not have {_shown(trigram)}", findings)
    findings.missing += len(missing - wrong)
    findings.wrong += len(wrong)


def _known_rows(rows: CoveredRows) -> BitMap64:
    """Return all rows that an index can have; a set of few bytes can have any number of others."""
    rows_of_index = BitMap64(rows.row_keys, optimize=False)
    for digest in () if rows.moved is None else rows.moved.old_fragments():
        first = digest.id << OFFSET_BITS
        rows_of_index.add_range(first, first + min(digest.physical_rows, 1 << OFFSET_BITS))
    return rows_of_index


def _words(rows: BitMap64) -> UInt64Array:
    return np.frombuffer(rows.to_array(), np.uint64)


def _describe(rows: CoveredRows, row_keys: BitMap64, text: str, findings: Findings) -> None:
    findings.add(
        rows.problem(int(np.searchsorted(rows.row_keys, np.uint64(word))), text)
        for word in row_keys
    )


def _shown(trigram: int) -> str:
    return "the row as null" if trigram == ngram.NULL_TRIGRAM else f"the row with trigram {trigram}"


CHECK = ColumnCheck(check)


# --------------------------------------------------------------------------------------------------
# NGRAM indexes rewritten with the row addresses after a compaction.
#
# `lance_spark.indexes.ngram.files` has the layout of the file. Deleted rows are left out, and so
# are trigrams without rows. The rows of a trigram are in memory at once.

#: Trigrams that are read at once.
_WINDOW_ROWS = 256


def _remap(segment: SegmentWriter, file: DataFileReader, address_map: AddressMap) -> None:
    writer = ngram.create(segment)
    for batch in _remapped(file, address_map):
        writer.write(batch)


def _remapped(data: DataFileReader, address_map: AddressMap) -> Iterator[pa.RecordBatch]:
    """Yield the trigrams, and the new addresses of their live rows."""
    moved = address_map.old_rows()
    fields = [named(data, ngram.TOKENS, pa.uint32()), named(data, ngram.POSTINGS, pa.binary())]
    for start in range(0, data.num_rows, _WINDOW_ROWS):
        rows = range(start, min(start + _WINDOW_ROWS, data.num_rows))
        trigrams, postings = data.read(fields, rows)
        lists: list[bytes | None] = []
        for item in postings:
            rows_of_trigram = ngram.decode_posting(item.as_py(), data.source.name)
            # A damaged set of few bytes can have billions of rows.
            old = np.array((rows_of_trigram & moved).to_array(), np.uint64)
            addresses, is_live = address_map.new_addresses(old)
            rows_of_trigram -= moved
            rows_of_trigram.update(addresses[is_live])
            lists.append(rows_of_trigram.serialize() if rows_of_trigram else None)
        columns = [trigrams, pa.array(lists, pa.binary())]
        kept = columns[1].is_valid()
        yield pa.RecordBatch.from_arrays(
            [column.filter(kept) for column in columns], schema=ngram.SCHEMA
        )


REMAPPING = of_one_file(ngram.FILE, _remap)
