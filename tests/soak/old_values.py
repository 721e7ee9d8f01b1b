"""Rows that pylance finds by the value that they had before an update.

pylance combines the answers of all segments of an index, and leaves out rows of fragments that no
segment covers. So it finds a row by the value in a segment that does not cover the row any more, if
another segment does.
"""

from __future__ import annotations

import re
from typing import Any

import lance_spark
from lance_spark.mutations.indexes.check import IndexCheck

#: What pylance leaves in segments that it merges: texts of before an update of rows with stable row
#: ids, and zones of before a rewrite of a column.
_LEFT = ("the index has other tokens, or has it more than once", "it overlaps the zone before it")


def is_left_by_pylance(check: IndexCheck) -> bool:
    """Return whether all that is wrong with an index is what pylance leaves when it merges."""
    return not check.missing and all(
        any(text in problem for text in _LEFT) for problem in check.problems
    )


def only_old_values(dataset: Any, theirs: Any, text: str) -> bool:
    """Return whether the rows that pylance finds for a filter are those of a scan, and rows that
    met the filter by an old value in another segment.

    Parameters
    ----------
    dataset : lance_spark.Dataset
    theirs : lance.LanceDataset
        The same version.
    text : str
        Its conditions are joined by AND and OR, if it has an OR.
    """
    scanned = theirs.to_table(columns=["id"], filter=text, use_scalar_index=False)["id"]
    ids = theirs.to_table(columns=["id"], filter=text)["id"]
    more = set(ids.to_pylist()) - set(scanned.to_pylist())
    if len(ids) != len(scanned) + len(more):
        return False
    fragments = dataset.to_table(["id", "_fragid"]).to_pydict()
    place = dict(zip(fragments["id"], fragments["_fragid"], strict=True))
    conditions = re.split(" AND | OR ", text) if " OR " in text else [text]
    for condition in conditions:
        for index in dataset.describe_indices():
            if not set(index.field_names) & set(re.findall(r"\w+", condition)):
                continue
            for segment in index.segments:
                covered = set().union(
                    *(other.fragment_ids for other in index.segments if other is not segment)
                )
                before = lance_spark.open_dataset(dataset.uri, segment.dataset_version)
                old = before.to_table(["id"], filter=condition, use_scalar_index=False)["id"]
                more -= {
                    row
                    for row in more & set(old.to_pylist())
                    if place[row] in covered - set(segment.fragment_ids)
                }
    return not more
