"""The pages of one column without children: which of them hold the rows asked for, and their
decoders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.types as pat
from google.protobuf.message import DecodeError

from lance_spark.encoding.meta import ColumnMeta, PageLocation
from lance_spark.encoding.rows import Rows, split_rows
from lance_spark.encoding.v2_0.page import Decoder, PageBuffers, open_encoding
from lance_spark.encoding.v2_1.page import errors_at
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.source import ReadPlan, gather_plans


def parse(encoding: bytes) -> pb.ArrayEncoding:
    """Return the message that describes a page; CorruptFileError if it is none."""
    try:
        return pb.ArrayEncoding.FromString(encoding)
    except DecodeError as error:
        raise CorruptFileError(f"the page's description cannot be parsed: {error}") from None


def message_of(column: ColumnMeta, page: int, name: str) -> pb.ArrayEncoding:
    """Return the message of a page of a column that only one encoding can store.

    Raises
    ------
    CorruptFileError
        The page has another encoding than the one of this name.
    """
    encoding = parse(column.pages[page].encoding)
    result = encoding.WhichOneof("array_encoding")
    if result != name:
        raise CorruptFileError(f"encoding {result or 'unknown'!r} where {name!r} was expected")
    return encoding


def check_rows(
    pieces: Sequence[tuple[int, Rows]], rows: Rows, lengths: Sequence[int], location: PageLocation
) -> None:
    """Check that the pages hold all of `rows`; CorruptFileError if they do not."""
    if sum(len(part) for _, part in pieces) != len(rows):
        raise CorruptFileError(
            f"{location.file}, column {location.column!r}: row {int(rows[-1])} was asked for, "
            f"but the pages hold {sum(lengths)} rows"
        )


class ColumnReader:
    """Reads rows of one column.

    Decoders of the pages that were read last are kept, with what they learnt (dictionaries,
    decompressed bytes), so that a scan in batches does that work once for each page.
    """

    def __init__(self, dtype: pa.DataType, column: ColumnMeta, location: PageLocation) -> None:
        self._dtype = dtype
        self._column = column
        self._location = location
        self._lengths = [page.num_rows for page in column.pages]
        self._decoders: dict[int, Decoder] = {}

    def read(self, rows: Rows) -> ReadPlan[pa.Array]:
        pieces = split_rows(rows, self._lengths)
        check_rows(pieces, rows, self._lengths, self._location)
        decoders = {page: self._decoders.get(page) or self._open(page) for page, _ in pieces}
        self._decoders = decoders
        plans = [self._read_page(page, decoders[page], part) for page, part in pieces]
        arrays = yield from gather_plans(plans)
        if not arrays:
            return pa.nulls(0, self._dtype)
        if len(arrays) == 1:
            return arrays[0]
        try:
            if pat.is_dictionary(self._dtype):
                arrays = pa.chunked_array(arrays).unify_dictionaries().chunks
            return pa.concat_arrays(arrays)
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"{self._location.file}, column {self._location.column!r}: {len(rows)} rows do "
                f"not fit one array of type {self._dtype}: read fewer rows at a time ({error})"
            ) from None

    def _open(self, page: int) -> Decoder:
        meta = self._column.pages[page]
        with errors_at(replace(self._location, page=page)):
            buffers = PageBuffers(meta.buffers, self._column.buffers)
            return open_encoding(parse(meta.encoding), self._dtype, meta.num_rows, buffers)

    def _read_page(self, page: int, decoder: Decoder, rows: Rows) -> ReadPlan[pa.Array]:
        with errors_at(replace(self._location, page=page)):
            return (yield from decoder.read(rows))
