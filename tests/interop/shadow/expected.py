"""Cases that are not the same, each with the result and the reason."""

from __future__ import annotations

_NESTED = "a filter of pylance cannot name a child by an expression of Arrow"
_TEXT = "a text is a value, and not an expression of SQL: give a function of the rows"

_OPTION = "what is not known is an error"

EXPECTED: dict[str, tuple[str, str]] = {
    "datasets: batches": ("more", "the first batch has the schema"),
    "datasets: shallow clone": ("more", "the open version by default"),
    "scanners: readahead 4": ("different", "a batch may have rows of several fragments"),
    "filters: case when int > 5 then true else false end": ("more", "CASE is evaluated"),
    "filters: int = '5'": ("more", "Spark's SQL casts the text"),
    "filters: expression child": ("more", _NESTED),
    "filters: expression day": ("more", _NESTED),
    "datasets: batches of another type than the schema": ("refused", "values are not cast"),
    "merges: update by an expression": ("refused", _TEXT),
    "merges: update text by an expression": ("different", _TEXT),
    "evolution: add by an expression": ("different", _TEXT),
    "blobs: filter of null blobs": ("refused", "blobs cannot be in conditions"),
    "blobs: sort by blobs": ("refused", "blobs have no order; pylance sorts by their positions"),
    "history: written fragments twice": (
        "different",
        "a transaction is committed once: the second commit finds the version of the first one",
    ),
    "indexes: option of another type": ("refused", _OPTION),
    "indexes: zones of no rows": ("refused", "a zone has rows"),
    "indexes: of some fragments": ("more", "`create_scalar_index` takes fragments for all types"),
    "indexes: segments without a name": ("refused", "an index has a name"),
    "indexes: optimised by an unknown name": ("refused", _OPTION),
    "merges: two new columns at once": ("more", "the second one is planned again"),
    "merges: restore and insert at once": ("more", "an insert is planned on the newest version"),
    "operations: clone as a branch": (
        "refused",
        "a branch is in the folder of its table; pylance makes a table that names a branch",
    ),
    "operations: rewritten index": (
        "more",
        "pylance cannot read a transaction that rewrote an index: it raises TypeError",
    ),
    "operations: rows of a session": ("more", "rows may be in any order, and repeated"),
    "operations: prewarmed text with positions": (
        "more",
        "searches for phrases read positions; an index without them is an error of the search",
    ),
    "sources: all versions": ("refused", "give `compared_against`, or both other versions"),
    "sources: file of a column": (
        "more",
        "the file may have some of the columns, for an operation",
    ),
    "sources: index of a replaced column": ("more", "the index is planned again"),
    "arguments: default options of scans": ("refused", "each scan has its options"),
    "arguments: old names of manifests": (
        "refused",
        "new tables have manifests with names of scheme V2",
    ),
    "arguments: index with an id": ("refused", "each segment gets an id of its own"),
    "arguments: compaction, another file version": (
        "refused",
        "a compaction keeps the file version",
    ),
    "arguments: take of expressions in a fragment": (
        "more",
        "as `take` of the table; pylance raises TypeError",
    ),
    "filters: expression cast": ("more", "pylance cannot pass a safe cast on"),
}
