"""Deletion files that hold, or claim, more than a column of offsets are refused before Arrow
allocates memory for them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError
from lance_spark.table.rows.deletions import decode_arrow
from tests.hostile.deletion_files import (
    behind_another_message,
    ipc,
    of_dictionary,
    of_old_compression,
    zeros,
)

ROWS = 300


def decoded(data: bytes, most: int = ROWS) -> list[int]:
    return decode_arrow(np.frombuffer(data, np.uint8), "the file", most).tolist()


@pytest.mark.parametrize("codec", ["zstd", "lz4", None])
def test_sound_files_are_read(codec: str | None) -> None:
    offsets = pa.array([7, 3, 250], pa.uint32())
    assert decoded(ipc(offsets, compression=codec)) == [3, 7, 250]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (of_dictionary, "1 dictionary batches, 0 are expected"),
        (of_old_compression, "metadata version V4, V5 is expected"),
        (behind_another_message, "a message of .* bytes in a block of"),
    ],
)
def test_files_that_only_arrow_would_inflate_are_refused(
    make: Callable[[int], bytes], message: str
) -> None:
    data = make(ROWS)
    with pa.ipc.open_file(data) as reader:
        # Arrow accepts the file.
        assert reader.get_batch(0).num_rows in (1, ROWS)
    with pytest.raises(
        CorruptFileError, match=f"the file: the deletion file cannot be read: .*{message}"
    ):
        decoded(data)


def test_several_batches_are_refused() -> None:
    schema = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for _ in range(2):
            writer.write_batch(pa.record_batch([zeros(ROWS)], schema=schema))
    with pytest.raises(CorruptFileError, match="2 record batches, 1 is expected"):
        decoded(bytes(sink.getvalue()))


@pytest.mark.parametrize("codec", ["zstd", None])
def test_more_rows_than_there_are(codec: str | None) -> None:
    data = ipc(zeros(ROWS), compression=codec)
    with pytest.raises(CorruptFileError, match="the file: the file deletes 300 rows of 299"):
        decoded(data, ROWS - 1)


def test_columns_of_other_types_are_refused() -> None:
    data = ipc(pa.array([1], pa.int64()))
    with pytest.raises(
        CorruptFileError, match=r"one column of type uint32, this one has \['int64'\]"
    ):
        decoded(data)


def test_signed_offsets_are_read_as_the_specification_has_them() -> None:
    assert decoded(ipc(pa.array([3, 1], pa.int32()))) == [1, 3]
    with pytest.raises(CorruptFileError, match="the file deletes row -1, which does not exist"):
        decoded(ipc(pa.array([-1, 1], pa.int32())))
