"""Cases that are not the same, each with the result and the reason."""

from __future__ import annotations

_NESTED = "a filter of pylance cannot name a child by an expression of Arrow"
_TEXT = "a text is a value, and not an expression of SQL: give a function of the rows"

EXPECTED: dict[str, tuple[str, str]] = {
    "datasets: batches": ("more", "the first batch has the schema"),
    "datasets: empty name": ("more", "a name may be empty"),
    "datasets: shallow clone": ("more", "the open version by default"),
    "scanners: child": (
        "different",
        "a struct with the children that are named; a mapping of columns gives them alone",
    ),
    "scanners: two children": ("different", "as one child"),
    "scanners: readahead 4": ("different", "a batch may have rows of several fragments"),
    "filters: case when int > 5 then true else false end": ("more", "CASE is evaluated"),
    "filters: int = '5'": ("more", "Spark's SQL casts the text"),
    "filters: expression child": ("more", _NESTED),
    "filters: expression day": ("more", _NESTED),
    "datasets: batches of another type than the schema": ("refused", "values are not cast"),
    "merges: update by an expression": ("refused", _TEXT),
    "merges: update text by an expression": ("different", _TEXT),
    "evolution: add by an expression": ("different", _TEXT),
    "filters: expression cast": ("more", "pylance cannot pass a safe cast on"),
}
