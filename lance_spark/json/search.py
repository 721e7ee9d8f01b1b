"""Searches of many JSONB values at once: children, items and leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from struct import pack
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.encoding.v2_1.codec import ranges
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.json.jsonb import (
    ARRAY,
    CONTAINER,
    CONTAINER_KIND,
    COUNT,
    ENTRY_KIND,
    FALSE,
    FLOAT,
    INT,
    LENGTH,
    MAX_DEPTH,
    NOT_FINITE,
    NUMBER,
    OBJECT,
    SCALAR,
    STRING,
    TRUE,
    UINT,
    ZERO,
    decode,
    encode,
)

# --------------------------------------------------------------------------------------------------
# Searches many JSONB values at once: children and items as arrays of positions.
#
# `lance_spark.json.jsonb` has the layout. A `Located` has one place for each document:
#
# | kind | place |
# | --- | --- |
# | `NOTHING` | the path found nothing |
# | `ODD` | unknown: `decode` must read the document, which may be damaged |
# | another kind of an entry | the payload of the entry, from `starts` to `stops` |
#
# A step reads the entries of all containers of its kind together. Every count and length is
# compared with the bytes of its container before it is used; a container whose entries do not fill
# it exactly is odd. So are keys that are no strings, a key that occurs twice, and kinds that JSON
# does not have.

NOTHING, ODD = 0xFFFF_FFFF, 0xFFFF_FFFE
#: Bytes of documents that are searched together: their arrays fit into the processor's caches.
_PIECE_BYTES = 1 << 20

Positions = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers among located values.

    - `is_int`, `is_float`: Which values are integers of 64 bits with a sign, and which are finite
      float64.
    - `is_null`: Which are numbers that JSON does not have.
    - `floats`: Also has the integers.
    """

    is_int: Bools
    is_float: Bools
    is_null: Bools
    ints: npt.NDArray[np.int64]
    floats: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Located:
    """A place in each of some documents.

    - `data`: Of all documents.
    - `kinds`: A kind of an entry, `NOTHING` or `ODD`.
    - `starts`, `stops`: Positions in `data`.
    """

    data: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint32]
    starts: Positions
    stops: Positions

    @classmethod
    def of(cls, documents: pa.Array) -> Located:
        """Return the documents themselves; nothing for null.

        - `documents`: Of type large_binary.
        """
        _, offset_buffer, content = documents.buffers()
        bounds = np.frombuffer(offset_buffer, np.int64)[documents.offset :][: len(documents) + 1]
        data = np.frombuffer(b"" if content is None else content, np.uint8)
        starts, stops = bounds[:-1].copy(), bounds[1:].copy()
        kinds = np.full(len(documents), CONTAINER, np.uint32)
        # Zero bytes are null.
        kinds[starts == stops] = 0
        if documents.null_count:
            kinds[documents.is_null().to_numpy(zero_copy_only=False)] = NOTHING
        self = cls(data, kinds, starts, stops)
        rows, headers = self._containers()
        scalars = rows[headers & CONTAINER_KIND == SCALAR]
        kinds[scalars] = ODD
        scalars = scalars[stops[scalars] - starts[scalars] >= 8]
        words = _read(data, ">u4", starts[scalars] + 4)
        starts[scalars] += 8
        fits = starts[scalars] + (words & LENGTH) == stops[scalars]
        kinds[scalars[fits]] = _checked_kinds(words[fits])
        return self

    def child(self, name: bytes | None, number: int | None) -> Located:
        """Return a child of each object, and an item of each array.

        - `name`: The key of the child, in UTF-8; None finds nothing in objects.
        - `number`: The number of the item, from 0; None finds nothing in arrays.
        """
        result = Located(
            self.data,
            np.where(self.kinds == ODD, ODD, NOTHING).astype(np.uint32),
            np.zeros_like(self.starts),
            np.zeros_like(self.starts),
        )
        result.kinds[self.kinds == CONTAINER] = ODD
        number = None if number is None or number > COUNT else number
        containers = self._sound_containers()
        is_read = containers.counts > 0
        if number is not None:
            is_read &= containers.is_object | (containers.counts > number)
        else:
            is_read &= containers.is_object
        if name is None:
            is_read &= ~containers.is_object
        result.kinds[containers.rows[~is_read]] = NOTHING
        JsonbEntries(self, containers.chosen(is_read)).find(name, number, result)
        return result

    def entries(self) -> tuple[JsonbEntries, Positions]:
        """Return the entries of all containers, and the rows of other containers, which are odd.

        A container whose entries are odd is known by `JsonbEntries.is_odd`.
        """
        is_odd = (self.kinds == ODD) | (self.kinds == CONTAINER)
        containers = self._sound_containers()
        is_odd[containers.rows] = False
        return JsonbEntries(self, containers.chosen(containers.counts > 0)), np.flatnonzero(is_odd)

    def numbers(self) -> Numbers:
        """Return the numbers; other values are not numbers in the result.

        Nor are integers without a sign that need 64 bits, decimals and damaged numbers.
        """
        is_int, is_float, is_null = (np.zeros(len(self.kinds), np.bool_) for _ in range(3))
        ints = np.zeros(len(self.kinds), np.int64)
        floats = np.zeros(len(self.kinds), np.float64)
        rows = np.flatnonzero((self.kinds == NUMBER) & (self.stops > self.starts))
        starts = self.starts[rows]
        tags = self.data[starts]
        sizes = self.stops[rows] - starts - 1
        is_int[rows[tags == ZERO]] = True
        is_null[rows[np.isin(tags, NOT_FINITE)]] = True
        for tag, letter in ((INT, "i"), (UINT, "u")):
            for size in (1, 2, 4, 8):
                chosen = (tags == tag) & (sizes == size)
                values = _read(self.data, f">{letter}{size}", starts[chosen] + 1)
                ints[rows[chosen]] = values.astype(np.int64)
                is_int[rows[chosen]] = values <= np.iinfo(np.int64).max if size == 8 else True
        floats[rows] = ints[rows]
        chosen = (tags == FLOAT) & (sizes == 8)
        values = _read(self.data, ">f8", starts[chosen] + 1)
        is_finite = np.isfinite(values)
        floats[rows[chosen]] = np.where(is_finite, values, 0.0)
        is_float[rows[chosen]] = is_finite
        is_null[rows[chosen]] = ~is_finite
        return Numbers(is_int, is_float, is_null, ints, floats)

    def lengths(self) -> tuple[Positions, Bools]:
        """Return the number of items of each array, 0 for other values, and which are odd."""
        rows, headers = self._containers()
        counts = np.zeros(len(self.kinds), np.int64)
        is_odd = (self.kinds == ODD) | (self.kinds == CONTAINER)
        item_counts = (headers & COUNT).astype(np.int64)
        is_array = headers & CONTAINER_KIND == ARRAY
        is_sound = is_array | (headers & CONTAINER_KIND == OBJECT)
        is_sound &= self.starts[rows] + 4 + 4 * item_counts <= self.stops[rows]
        is_odd[rows[is_sound]] = False
        counts[rows[is_array]] = item_counts[is_array]
        return counts, is_odd

    def document(self, row: int) -> bytes:
        """Return the value of a row, whose kind is that of an entry, as JSONB of its own."""
        payload = self.data[self.starts[row] : self.stops[row]].tobytes()
        entry_kind = int(self.kinds[row])
        return (
            payload
            if entry_kind == CONTAINER
            else pack(">II", SCALAR, entry_kind | len(payload)) + payload
        )

    def _containers(self) -> tuple[Positions, npt.NDArray[np.uint32]]:
        """Return the rows of containers with a header, and their headers."""
        rows = np.flatnonzero((self.kinds == CONTAINER) & (self.stops - self.starts >= 4))
        return rows, _read(self.data, ">u4", self.starts[rows]).astype(np.uint32)

    def _sound_containers(self) -> _Containers:
        """Return the objects and arrays that have as many bytes as their entries take."""
        rows, headers = self._containers()
        counts = (headers & COUNT).astype(np.int64)
        is_object = headers & CONTAINER_KIND == OBJECT
        num_entries = np.where(is_object, 2 * counts, counts)
        payloads = self.starts[rows] + 4 + 4 * num_entries
        is_sound = is_object | (headers & CONTAINER_KIND == ARRAY)
        is_sound &= payloads <= self.stops[rows]
        return _Containers(rows, counts, num_entries, is_object).chosen(is_sound)


@dataclass(frozen=True, slots=True)
class _Containers:
    """Some objects and arrays.

    - `counts`, `num_entries`: The number in each header, and of the entries.
    """

    rows: Positions
    counts: Positions
    num_entries: Positions
    is_object: Bools

    def chosen(self, mask: Bools) -> _Containers:
        rows, counts, num_entries = self.rows[mask], self.counts[mask], self.num_entries[mask]
        return _Containers(rows, counts, num_entries, self.is_object[mask])


class JsonbEntries:
    """The entries of some objects and arrays, one container after the other.

    - `containers`: Each has an entry.
    - `rows`: Row of each container.
    - `counts`: Items of each array, and children of each object.
    - `is_object`, `is_odd`: Which containers are objects, and which are damaged or have values that
      JSON does not have.
    - `container`: Container of each entry, as a number from 0 on.
    - `is_key`: Which entries are keys of objects.
    - `ends`: Where the payload of each entry ends. Meaningless for entries of odd containers.
    """

    def __init__(self, values: Located, containers: _Containers) -> None:
        rows, counts = containers.rows, containers.counts
        num_entries, is_object = containers.num_entries, containers.is_object
        self._data = values.data
        self.rows = rows
        self.counts = counts
        self.is_object = is_object
        self._firsts = np.cumsum(num_entries) - num_entries
        self.container = np.repeat(np.arange(len(rows)), num_entries)
        starts, stops = values.starts[rows], values.stops[rows]
        first_words = starts + 4
        self._number = np.arange(len(self.container)) - self._firsts[self.container]
        words = _read(self._data, ">u4", first_words[self.container] + 4 * self._number)
        self.kinds = _checked_kinds(words)
        self._lengths = (words & LENGTH).astype(np.int64)
        ends = np.cumsum(self._lengths)
        firsts = self._firsts
        payloads = first_words + 4 * num_entries
        shifts = payloads - (ends[firsts] - self._lengths[firsts])
        # Increasing within a container: if the last end is right, all are inside.
        self.ends = ends + shifts[self.container]
        is_key = is_object[self.container] & (self._number < counts[self.container])
        self.is_key = is_key
        self.is_odd = self.ends[firsts + num_entries - 1] != stops
        wrong = (self.kinds == ODD) | (is_key & (self.kinds != STRING))
        self.is_odd[self.container[wrong]] = True

    @property
    def starts(self) -> Positions:
        """First byte of the payload of each entry."""
        starts: Positions = self.ends - self._lengths
        return starts

    def find(self, name: bytes | None, number: int | None, result: Located) -> None:
        """Set the places of children and items in the rows of a result."""
        result.kinds[self.rows[~self.is_odd]] = NOTHING
        entries = np.zeros(0, np.int64)
        if name is not None:
            entries = self.equal_to(name, self.is_key)
            containers = self.container[entries]
            twice = containers[1:][containers[1:] == containers[:-1]]
            result.kinds[self.rows[twice]] = ODD
            self.is_odd[twice] = True
            entries += self.counts[containers]
        if number is not None:
            arrays = np.flatnonzero(~self.is_object)
            entries = np.concatenate([entries, self._firsts[arrays] + number])
        entries = entries[~self.is_odd[self.container[entries]]]
        rows = self.rows[self.container[entries]]
        result.kinds[rows] = self.kinds[entries]
        result.stops[rows] = self.ends[entries]
        result.starts[rows] = self.ends[entries] - self._lengths[entries]

    def equal_to(self, text: bytes, chosen: Bools) -> Positions:
        """Return those of chosen entries of sound containers whose payload is a text."""
        candidates = np.flatnonzero(chosen & (self._lengths == len(text)))
        candidates = candidates[~self.is_odd[self.container[candidates]]]
        starts = self.ends[candidates] - len(text)
        for index, byte in enumerate(text):
            is_equal = self._data[starts + index] == byte
            candidates, starts = candidates[is_equal], starts[is_equal]
        matches: Positions = candidates
        return matches


def pieces(documents: pa.Array) -> Iterator[pa.Array]:
    """Yield slices of an array that are searched together; at least one."""
    if not len(documents):
        yield documents
        return
    bounds = np.frombuffer(documents.buffers()[1], np.int64)[documents.offset :]
    bounds = bounds[: len(documents) + 1]
    start = 0
    while start < len(documents):
        stop = int(np.searchsorted(bounds, bounds[start] + _PIECE_BYTES, side="right"))
        stop = min(max(stop - 1, start + 1), len(documents))
        yield documents.slice(start, stop - start)
        start = stop


def strings(values: Located, chosen: Bools) -> pa.Array:
    """Return the payloads of chosen values as strings, and null for others.

    Raises pyarrow.ArrowInvalid: a payload is not UTF-8.
    """
    lengths = np.where(chosen, values.stops - values.starts, 0)
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    content = values.data[ranges(values.starts, lengths)]
    validity = pa.py_buffer(np.packbits(chosen, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers).cast(pa.string())


def _checked_kinds(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the kinds of entries; `ODD` for those that JSON does not have, and for containers
    without a header.
    """
    kinds = words & np.uint32(ENTRY_KIND)
    is_odd = (kinds > CONTAINER) | ((kinds == CONTAINER) & (words & LENGTH < 4))
    return np.where(is_odd, ODD, kinds).astype(np.uint32) if is_odd.any() else kinds


def _read(data: npt.NDArray[np.uint8], dtype: str, positions: Positions) -> npt.NDArray[Any]:
    """Return the numbers at some positions, which are inside of the data."""
    width = np.dtype(dtype).itemsize
    if not len(positions):
        return np.zeros(0, np.dtype(dtype).newbyteorder("="))
    every = np.ndarray((len(data) - width + 1,), dtype, buffer=data, strides=(1,))
    return every[positions].astype(np.dtype(dtype).newbyteorder("="))


# --------------------------------------------------------------------------------------------------
# The leaves of many JSONB values at once: all values that are neither objects nor arrays.
#
# A step replaces each container by its items, at its place, until there are no containers. So
# leaves have the order of the document, and a step works on the containers of all documents
# together.

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
