"""The searches of all index types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.scan.indexes import bitmap, btree_search, label_list, ngram, rtree
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.row_sets import Answer
from lance_spark.table.indexes.sections import READ_VERSIONS

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
    is_exact : bool
        Whether an answer has no other rows than those for which the comparison holds.
    """

    versions: Collection[int]
    ops: Collection[str]
    search: Search
    is_exact: bool = False


#: By the name of the type, in the order in which a column's indexes are asked.
SEARCHED: Mapping[str, IndexType] = {
    "BTREE": IndexType(READ_VERSIONS["BTREE"], btree_search.OPS, btree_search.search, True),
    "BITMAP": IndexType(READ_VERSIONS["BITMAP"], bitmap.OPS, bitmap.search, True),
    "LABEL_LIST": IndexType(READ_VERSIONS["LABEL_LIST"], label_list.OPS, label_list.search),
    "NGRAM": IndexType(READ_VERSIONS["NGRAM"], ngram.OPS, ngram.search),
    "RTREE": IndexType(READ_VERSIONS["RTREE"], rtree.OPS, rtree.search),
}
