"""The searches of all index types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.scan.indexes import bitmap, btree_search, label_list, ngram, rtree
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.row_sets import Answer

#: Searches a segment.
#:
#: Takes the files of the segment, the type of the column, operator and value as a
#: `conditions.RangePruner`, and the most rows of an answer that is worth its cost. Returns the row
#: ids or addresses of all rows in the segment for which the comparison holds, and maybe others;
#: `TooMany` if they are more; None if the index does not decide.
Search = Callable[[IndexFiles, pa.DataType, str, Any, int], Answer]


@dataclass(frozen=True, slots=True)
class IndexType:
    """A type of index that scans use.

    Attributes
    ----------
    versions : collection of int
        Supported versions.
    ops : collection of str
        Comparisons that it answers.
    search : callable
        See `Search`.
    """

    versions: Collection[int]
    ops: Collection[str]
    search: Search


#: By the name of the type, in the order in which a column's indexes are asked.
SEARCHED: Mapping[str, IndexType] = {
    "BTREE": IndexType((0, 1), btree_search.OPS, btree_search.search),
    "BITMAP": IndexType((0,), bitmap.OPS, bitmap.search),
    "LABEL_LIST": IndexType((0, 1), label_list.OPS, label_list.search),
    "NGRAM": IndexType((0,), ngram.OPS, ngram.search),
    "RTREE": IndexType((0,), rtree.OPS, rtree.search),
}
