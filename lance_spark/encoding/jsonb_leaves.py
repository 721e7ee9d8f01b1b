"""The leaves of many JSONB values at once: all values that are neither objects nor arrays.

A step replaces each container by its items, at its place, until there are no containers. So leaves
have the order of the document, and a step works on the containers of all documents together.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lance_spark.encoding.jsonb import (
    CONTAINER,
    FALSE,
    MAX_DEPTH,
    NUMBER,
    STRING,
    TRUE,
    decode,
    encode,
)
from lance_spark.encoding.jsonb_search import (
    NOTHING,
    Bools,
    JsonbEntries,
    Located,
    Positions,
    strings,
)
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError

_LITERALS = {0: "null", FALSE: "false", TRUE: "true"}


@dataclass(frozen=True, slots=True)
class Leaves:
    """The leaves of some documents, in the order of the documents and of the leaves in them.

    - `rows`: Document of each leaf.
    - `paths`: Number of the path of each leaf in `names`.
    - `names`: Keys joined by points. The items of an array have the path of the array; a document
      that is a leaf has the path "".
    - `values`: Strings, numbers, booleans and nulls.
    """

    rows: Positions
    paths: Positions
    names: list[str]
    values: Located

    @classmethod
    def of(cls, documents: pa.Array) -> Leaves:
        """Return the leaves of documents; a null document has none.

        - `documents`: JSONB of type large_binary.

        Raises CorruptFileError, UnsupportedEncodingError: a document is damaged, or has a type that
        JSON lacks, or is nested too deep.
        """
        leaves, odd = _leaves(documents)
        if not len(odd):
            return leaves
        # A document that is read one value at a time is damaged, or has a key twice.
        values = documents.to_pylist()
        for row in odd.tolist():
            values[row] = encode(json.dumps(json.loads(decode(values[row])), ensure_ascii=False))
        leaves, odd = _leaves(pa.array(values, pa.large_binary()))
        if len(odd):
            raise CorruptFileError("JSONB is damaged: a container has other bytes than its entries")
        return leaves

    def texts(self) -> pa.Array:
        """Return the texts of numbers, booleans and nulls as JSON writes them; null for strings."""
        values, kinds = self.values, self.values.kinds
        numbers = values.numbers()
        texts = pa.array(numbers.ints).cast(pa.string()).to_numpy(zero_copy_only=False)
        texts[kinds == STRING] = None
        for entry_kind, text in _LITERALS.items():
            texts[kinds == entry_kind] = text
        # As a rule, few numbers are not integers, and most of these differ.
        others = np.flatnonzero((kinds == NUMBER) & ~numbers.is_int)
        texts[others] = [decode(values.document(row)) for row in others.tolist()]
        return pa.array(texts, pa.string())

    def strings(self) -> pa.Array:
        """Return the strings, and null for other leaves.

        Raises CorruptFileError: a string is not UTF-8.
        """
        return _strings(self.values, self.values.kinds == STRING)


def _leaves(documents: pa.Array) -> tuple[Leaves, Positions]:
    """Return the leaves of documents, and the documents whose leaves are not known."""
    values = Located.of(documents)
    rows = np.flatnonzero(values.kinds != NOTHING)
    values = _at(values, rows)
    paths, names = np.zeros(len(rows), np.int64), [""]
    odd = np.empty(0, np.int64)
    for _ in range(MAX_DEPTH + 2):
        entries, odd_nodes = values.entries()
        odd_nodes = np.concatenate([odd_nodes, entries.rows[entries.is_odd]])
        if len(odd_nodes):
            odd = np.union1d(odd, rows[odd_nodes])
            kept = ~np.isin(rows, odd)
            rows, paths, values = rows[kept], paths[kept], _at(values, np.flatnonzero(kept))
            continue
        is_container = values.kinds == CONTAINER
        if not is_container.any():
            return Leaves(rows, paths, names, values), odd
        sizes = np.ones(len(rows), np.int64)
        sizes[is_container] = 0
        sizes[entries.rows] = entries.counts
        nodes = np.repeat(np.arange(len(rows)), sizes)
        is_item = is_container[nodes]
        of_entries = ~entries.is_key
        values = _at(values, nodes)
        values.kinds[is_item] = entries.kinds[of_entries]
        values.starts[is_item] = entries.starts[of_entries]
        values.stops[is_item] = entries.ends[of_entries]
        item_paths, names = _paths(entries, paths, names, values)
        rows, paths = rows[nodes], paths[nodes]
        paths[is_item] = item_paths
    raise UnsupportedEncodingError(f"JSONB is nested more than {MAX_DEPTH} deep")


def _paths(
    entries: JsonbEntries, paths: Positions, names: list[str], values: Located
) -> tuple[Positions, list[str]]:
    """Return the path of each item of containers as a number, and the names of all paths.

    - `paths`: Path of each container, and of other values, by their rows.
    - `values`: Has the data.
    """
    is_key = entries.is_key
    of_items = paths[entries.rows[entries.container[~is_key]]]
    if not is_key.any():
        return of_items, names
    starts, stops = entries.starts[is_key], entries.ends[is_key]
    located = Located(values.data, entries.kinds[is_key], starts, stops)
    keys = _strings(located, np.ones(len(starts), np.bool_)).dictionary_encode()
    # Values follow the keys of their object in the same order.
    is_child = entries.is_object[entries.container[~is_key]]
    codes = keys.indices.to_numpy().astype(np.int64)
    pairs = of_items[is_child] * len(keys.dictionary) + codes
    distinct, of_children = np.unique(pairs, return_inverse=True)
    known = keys.dictionary.to_pylist()
    parents, places = np.divmod(distinct, len(known))
    of_items[is_child] = of_children + len(names)
    joined = [
        f"{names[parent]}.{known[place]}" if names[parent] else known[place]
        for parent, place in zip(parents.tolist(), places.tolist(), strict=True)
    ]
    return of_items, names + joined


def _at(values: Located, nodes: Positions) -> Located:
    return Located(values.data, values.kinds[nodes], values.starts[nodes], values.stops[nodes])


def _strings(values: Located, chosen: Bools) -> pa.Array:
    try:
        return strings(values, chosen)
    except pa.ArrowInvalid:
        raise CorruptFileError("JSONB is damaged: a string is not UTF-8") from None
