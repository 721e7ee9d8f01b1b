"""NGRAM indexes: the rows whose texts have three certain characters in a row.

The only file, `ngram_postings.lance`, has a row for each trigram (`trigrams`), ascending:

| column | content |
| --- | --- |
| tokens | uint32 |
| posting_list | binary; the rows as a 64-bit Roaring bitmap in the portable form |

Trigram 0 has the rows with null. A text with a certain part has all trigrams of that part. So the
rows that have them all are candidates. A part without trigrams leaves all rows.

Specification: table/index/scalar/ngram.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.file.writer import FileWriter
from lance_spark.scan.indexes.files import (
    IndexFiles,
    SegmentWriter,
    binary_values,
    read_columns,
)
from lance_spark.scan.indexes.row_sets import Answer, TooMany
from lance_spark.scan.indexes.search import IndexSearch
from lance_spark.scan.indexes.trigrams import TrigramFinder, trigrams_of_text
from lance_spark.table.rows.u64_segments import UInt64Array

FILE = "ngram_postings.lance"
TOKENS, POSTINGS = "tokens", "posting_list"
OPS = frozenset({"contains"})
#: The trigram of rows with null.
NULL_TRIGRAM = 0
#: Most trigrams of a part that are looked up.
_MAX_TRIGRAMS = 64
#: Trigrams of a batch that is written.
_BATCH_ROWS = 512
SCHEMA = pa.schema(
    [
        pa.field(TOKENS, pa.uint32()),
        pa.field(
            POSTINGS, pa.binary(), nullable=False, metadata={"lance-encoding:compression": "none"}
        ),
    ]
)


def search(files: IndexFiles, dtype: pa.DataType, op: str, value: Any, limit: int) -> Answer:
    """Return the row ids whose text may have a part; see `search.Search`."""
    trigrams_of_part = trigrams_of_text(value) if isinstance(value, str) else []
    if not trigrams_of_part:
        return None
    trigrams = cached_trigrams(files)
    if trigrams is None:
        return None
    # With fewer trigrams, more rows are candidates, and no row is lost.
    step = -(-len(trigrams_of_part) // _MAX_TRIGRAMS)
    chosen = np.array(trigrams_of_part[::step], np.uint32)
    places = np.minimum(np.searchsorted(trigrams, chosen), max(len(trigrams) - 1, 0))
    if not len(trigrams) or (trigrams[places] != chosen).any():
        return np.empty(0, np.uint64)
    rows = BitMap64.intersection(*read_postings(files, np.sort(places)))
    if len(rows) > limit:
        return TooMany(len(rows))
    return np.frombuffer(rows.to_array(), np.uint64)


def cached_trigrams(files: IndexFiles) -> np.ndarray[Any, np.dtype[np.uint32]] | None:
    """Return the trigrams of a segment; None if the file is missing."""
    return files.cached(FILE, read_trigrams, lambda trigrams: int(trigrams.nbytes))


def read_trigrams(files: IndexFiles) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the trigrams of a segment, ascending.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    with files.opened(FILE) as file:
        column = read_columns(file, {TOKENS: pa.uint32()}).column(0)
        name = file.source.name
    trigrams: np.ndarray[Any, np.dtype[np.uint32]] = column.fill_null(0).to_numpy()
    if column.null_count or (trigrams[1:] <= trigrams[:-1]).any():
        raise CorruptFileError(f"{name}: {TOKENS} must ascend, and not be null; rebuild the index")
    return trigrams


def read_postings(files: IndexFiles, rows: RowNumbers) -> Iterator[BitMap64]:
    """Yield the row ids of the trigrams in some rows of the file, which increase.

    Raises
    ------
    CorruptFileError, StorageError
    """
    for data, name in binary_values(files, FILE, POSTINGS, rows):
        yield decode_posting(data, name)


def decode_posting(data: bytes, name: str) -> BitMap64:
    """Parse the rows of a trigram; errors call the file `name`.

    Raises
    ------
    CorruptFileError
    """
    try:
        return BitMap64.deserialize(data)
    except (ValueError, TypeError, IndexError, MemoryError) as error:
        raise CorruptFileError(
            f"{name}: a posting list is damaged ({error}); rebuild the index"
        ) from None


def create(segment: SegmentWriter) -> FileWriter:
    """Return the writer of a new file, which the segment finishes."""
    return segment.create(FILE, SCHEMA)


def write(segment: SegmentWriter, values: pa.Array, ids: UInt64Array) -> None:
    """Write the file of an index.

    Parameters
    ----------
    segment : SegmentWriter
    values : pa.Array
        Strings.
    ids : uint64 array
        Row id or address of each value, increasing.
    """
    postings = postings_of(values, ids)
    writer = create(segment)
    ordered = sorted(postings)
    for first in range(0, len(ordered), _BATCH_ROWS):
        part = ordered[first : first + _BATCH_ROWS]
        lists = [postings.pop(trigram).serialize() for trigram in part]
        columns = [pa.array(part, pa.uint32()), pa.array(lists, pa.binary())]
        writer.write(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def postings_of(values: pa.Array, ids: UInt64Array) -> dict[int, BitMap64]:
    """Return the row ids of each trigram.

    Parameters
    ----------
    values : pa.Array
        Strings.
    ids : uint64 array
        Row id or address of each value, increasing.
    """
    postings: dict[int, BitMap64] = {}
    nulls = ids[values.is_null().to_numpy(zero_copy_only=False)]
    if len(nulls):
        postings[NULL_TRIGRAM] = BitMap64(nulls, optimize=False)
    for trigrams, rows in TrigramFinder().trigrams(values):
        starts = np.flatnonzero(np.diff(trigrams, prepend=np.uint32(0xFFFFFFFF)))
        bounds = itertools.pairwise([*starts.tolist(), len(trigrams)])
        row_keys = ids[rows]
        for key, (start, stop) in zip(trigrams[starts].tolist(), bounds, strict=True):
            postings.setdefault(key, BitMap64()).update(row_keys[start:stop])
    return postings


SEARCH = IndexSearch(OPS, search)
