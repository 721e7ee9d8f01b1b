"""Damaged pages and messages of version 2.3: the trials of versions 2.1 and 2.2, with the encodings
of this version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_spark.encoding.v2_3.field import open_field
from lance_spark.file.footer import Tail, read_columns, read_footer
from lance_spark.proto import encodings_v2_3_pb2 as pb
from lance_spark.storage.local import LocalSource
from tests.encoding.v2_1 import test_hostile as trials
from tests.encoding.v2_1.test_hostile import (  # noqa: F401
    ROWS,
    STRUCT,
    Case,
    Damaged,
    StrictSource,
    made,
    test_buffers_cut_short,
    test_flipped_bits_of_messages,
    test_flipped_bits_of_pages,
    test_numbers_of_messages,
    traced,
)
from tests.encoding.v2_3.pages import SPARSE, choices, lists_of, nulls_at, text, wide, write

PACKED = {"packed": "true", **SPARSE}


def sparse(dtype: pa.DataType, nulls: float, pattern: str = "random") -> Case:
    return made(dtype, pattern, nulls, structural_encoding="sparse")


def repeated() -> pa.Array:
    """Wide values for which a dictionary saves bytes."""
    rng = np.random.default_rng(4)
    known = np.random.default_rng(5).bytes(40 * 5000)
    items = pa.array([known[i * 5000 : (i + 1) * 5000] for i in range(40)])
    return nulls_at(items.take(pa.array(rng.integers(0, 40, ROWS))), 0.2)


CASES: dict[str, Callable[[], Case]] = {
    "numbers": lambda: sparse(pa.int64(), 0.2),
    "mostly_nulls": lambda: sparse(pa.int64(), 0.95),
    "strings": lambda: sparse(pa.string(), 0.3),
    "lists": lambda: sparse(pa.list_(pa.int32()), 0.3),
    "lists_of_lists": lambda: sparse(pa.list_(pa.list_(pa.int16())), 0.3),
    "structs": lambda: sparse(pa.struct([("a", pa.int32())]), 0.3),
    "vectors_of_structs": lambda: sparse(pa.list_(pa.struct([("a", pa.int32())]), 3), 0.3),
    "zipped": lambda: sparse(pa.list_(pa.float32(), 128), 0.3),
    "zipped_strings": lambda: (nulls_at(wide(ROWS), 0.3), SPARSE),
    "zipped_lists": lambda: (lists_of(nulls_at(wide(ROWS), 0.3), np.arange(47)), SPARSE),
    "indexed": lambda: (repeated(), SPARSE),
    "constant": lambda: (
        lists_of(nulls_at(pa.array([7] * 4000), 0.3), np.arange(900) % 7, 0.2),
        SPARSE,
    ),
    "all_null": lambda: sparse(pa.struct([("a", pa.list_(pa.int32()))]), 1.0),
    "packed": lambda: (nulls_at(made(STRUCT)[0], 0.3), PACKED),
    "counts_in_runs": lambda: (lists_of(pa.array(range(4000)), np.repeat([5, 9, 2, 70], 40)), {}),
    "counts_told": lambda: (
        lists_of(pa.array(range(6000)), np.repeat(np.arange(1, 40), 7)),
        SPARSE,
    ),
    "counts_of_few": lambda: (lists_of(pa.array(range(6000)), np.arange(900) % 7 // 2), SPARSE),
    "dense_offsets": lambda: (text(np.random.default_rng(1).integers(0, 30, ROWS)), {}),
    "dense_offsets_in_runs": lambda: (text((np.arange(ROWS) % 100 == 0) * 20), {}),
    "dense_offsets_told": lambda: (text(np.full(ROWS, 16)), {}),
}


@pytest.fixture(scope="module", autouse=True)
def version() -> Iterator[None]:
    """Make the trials open and parse pages of this version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "StructuralField", open_field)
        patch.setattr(trials, "FLIPS", trials.FLIPS // 4)
        patch.setattr(trials, "pb", SimpleNamespace(PageLayout=pb.PlanarLayout))
        yield


@pytest.fixture(scope="module", params=CASES)
def damaged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, version: None
) -> Damaged:
    array, metadata = CASES[request.param]()
    field = pa.field("c", array.type, metadata=metadata or None)
    path = tmp_path_factory.mktemp("f") / "f.lance"
    with LanceFileWriter(str(path), pa.schema([field]), version="2.3") as writer:
        writer.write_batch(pa.record_batch([array], schema=pa.schema([field])))
    tail = Tail(LocalSource(str(path)))
    footer = read_footer(tail)
    columns = read_columns(tail, footer, range(len(footer.column_metadata)))
    raw = path.read_bytes()
    assert trials.reads(field, columns, StrictSource(raw))
    return field, columns, raw


def test_pages_that_claim_more_rows(damaged: Damaged) -> None:
    """A sparse page may claim any number of rows, which are empty or valid: only memory limits
    them.
    """
    field, columns, raw = damaged
    pages = [column.pages[0] for column in columns]
    for rows in (pages[0].num_rows * 1000, 3 << 40, (1 << 63) - 1):
        broken = [
            replace(column, pages=(replace(page, num_rows=rows),))
            for column, page in zip(columns, pages, strict=True)
        ]
        if rows == pages[0].num_rows * 1000 and pa.types.is_fixed_size_list(field.type):
            # Arrow's vectors take memory for each row, null or not.
            continue
        read = trials.reads(field, broken, StrictSource(raw))
        assert not read or rows == pages[0].num_rows * 1000


def test_the_cases_cover_all_new_choices() -> None:
    result = set()
    for case in CASES.values():
        array, metadata = case()
        result |= choices(write(array, metadata))
    assert result >= {
        "structure.sparse",
        "values.chunked",
        "values.zipped",
        "values.indexed",
        "values.constant",
        "values.no_values",
        "layer.validity",
        "layer.list",
        "layer.fixed_size_list",
        "compression.range",
        "compression.delta",
        "compression.rle",
        "compression.dictionary",
    }
