"""The tokens of a part of an INVERTED index.

| `token_set_format` | columns of `part_<n>_tokens.lance` |
| --- | --- |
| `arrow` | _token (string), _token_id (uint32): a row for each token, in order |
| `fst` | _token_fst_bytes, _token_next_id, _token_total_length: one row, see `fst` |
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, overload

import numpy as np
import pyarrow as pa

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError
from lance_spark.scan.indexes.files import IndexFiles, named, read_columns
from lance_spark.scan.text.files.fst.reader import TokenGraph

ARROW, FST = "arrow", "fst"
TOKEN, TOKEN_ID = "_token", "_token_id"
FST_BYTES, FST_COUNT, FST_LENGTH = "_token_fst_bytes", "_token_next_id", "_token_total_length"


class TokenSet(Protocol):
    """Finds the numbers of tokens."""

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        ...

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; None if it is missing."""
        ...

    def starting_with(self, prefix: bytes, most_bytes: int) -> tuple[list[bytes], RowNumbers]:
        """Return the tokens of at most some bytes that start with others, and their numbers."""
        ...


class _Sorted(Sequence[bytes]):
    """A sorted array, for `bisect`."""

    def __init__(self, array: pa.Array) -> None:
        self._array = array

    @overload
    def __getitem__(self, number: int) -> bytes: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[bytes]: ...
    def __getitem__(self, number: int | slice) -> bytes | Sequence[bytes]:
        value: bytes = self._array[number].as_py()
        return value

    def __len__(self) -> int:
        return len(self._array)


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Tokens in the order of their bytes.

    Attributes
    ----------
    tokens : pa.Array
        Large binary, increasing.
    numbers : int64 array
    """

    tokens: pa.Array
    numbers: RowNumbers

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.tokens.nbytes + self.numbers.nbytes)

    def find(self, token: bytes) -> int | None:
        """Return the number of a token; None if it is missing."""
        position = bisect_left(_Sorted(self.tokens), token)
        if position == len(self.tokens) or self.tokens[position].as_py() != token:
            return None
        return int(self.numbers[position])

    def starting_with(self, prefix: bytes, most_bytes: int) -> tuple[list[bytes], RowNumbers]:
        """Return the tokens of at most some bytes that start with others, and their numbers."""
        import pyarrow.compute as pc

        keys = _Sorted(self.tokens)
        # No byte of UTF-8 is 255.
        first, last = bisect_left(keys, prefix), bisect_left(keys, prefix + b"\xff")
        tokens = self.tokens.slice(first, last - first)
        fits = pc.less_equal(pc.binary_length(tokens), most_bytes)
        kept = fits.to_numpy(zero_copy_only=False)
        return tokens.filter(fits).to_pylist(), self.numbers[first:last][kept]


def read_tokens(files: IndexFiles, file: str, form: str, num_tokens: int) -> TokenSet:
    """Read the tokens of a part.

    Parameters
    ----------
    files : IndexFiles
    file : str
        Name of the file.
    form : str
        `token_set_format`.
    num_tokens : int
        Posting lists of the part.

    Raises
    ------
    CorruptFileError, MissingFileError, StorageError
    """
    import pyarrow.compute as pc

    with closing(files.open(file)) as reader:
        name = reader.source.name
        if form == FST:
            fields = {FST_BYTES: pa.large_binary(), FST_COUNT: pa.uint32()}
            row = read_columns(reader, fields).to_pylist()
            if len(row) != 1 or None in row[0].values() or row[0][FST_COUNT] != num_tokens:
                raise _error(name)
            return TokenGraph.parse(row[0][FST_BYTES], num_tokens, name)
        dtype = named(reader, TOKEN).arrow_field.type
        columns = read_columns(reader, {TOKEN: None, TOKEN_ID: pa.uint32()})
    if dtype not in (pa.string(), pa.large_string()):
        raise _error(name)
    tokens, ids = columns.column(0), columns.column(1)
    if tokens.null_count or ids.null_count or len(tokens) != num_tokens:
        raise _error(name)
    tokens = tokens.cast(pa.large_binary())
    numbers = ids.to_numpy().astype(np.int64)
    if not pc.all(pc.less(tokens[:-1], tokens[1:])).as_py():
        order = pc.array_sort_indices(tokens)
        tokens, numbers = tokens.take(order), numbers[order.to_numpy()]
    if not np.array_equal(np.sort(numbers), np.arange(num_tokens)):
        raise _error(name)
    return TokenTable(tokens, numbers)


def _error(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name}: the tokens do not match the postings; rebuild the index")
