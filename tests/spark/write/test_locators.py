"""Locators: made by the scan of blobs of every kind and place, resolved by a writer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath
from lance.blob import Blob

import lance_spark
from lance_spark.errors import MissingFileError
from lance_spark.file.blobs.fields import with_locators
from lance_spark.scan import blobs as blob_locators
from lance_spark.scan.blobs import Mark
from lance_spark.spark.write import locators
from lance_spark.spark.write.locators import BlobSources, resolved
from tests.support.interop.blobs import Values, extended, marked, random_values, table

MARK = bytes(range(100, 116))
SOURCES = BlobSources(MARK, ({}, {}))
LARGEST = 300


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_locators, "MAX_VALUE_BYTES", LARGEST)
    monkeypatch.setattr(locators, "_MAX_OPEN", 2)


def copied(path: Path, source: int = 1, **options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table, as a query gets them that only copies the blobs."""
    dataset = lance_spark.open_dataset(str(path), **options)
    plan = dataset._reader.plan(
        ["i", "b"], blob_handling="all_binary", batch_size=70, rows_per_task=100, min_partitions=1
    )
    for task in plan.tasks:
        number, blob = task.lance_schema.fields
        fields = (number, with_locators(blob, bytes(Mark(MARK, source))))
        schema = replace(task.lance_schema, fields=fields)
        yield from replace(task, lance_schema=schema).batches()


def values(batches: Iterator[pa.RecordBatch]) -> Values:
    return [value for batch in batches for value in batch.column("b").to_pylist()]


def is_locator(value: bytes | None) -> bool:
    return value is not None and value.startswith(MARK)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "extended"])
def test_blobs_of_every_kind(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = random_values(300)
    column = extended(expected) if version == "extended" else marked(expected)
    storage = "2.2" if version == "extended" else version
    path = tmp_path / "t"
    lance.write_dataset(
        table(column), str(path), data_storage_version=storage, max_rows_per_file=90
    )
    lance.dataset(str(path)).delete("i % 11 = 3")
    expected = [value for index, value in enumerate(expected) if index % 11 != 3]
    rows = list(copied(path))
    found = values(iter(rows))
    assert [is_locator(value) for value in found] == [len(v or b"") > LARGEST for v in expected]
    # They are small, and everything else has its bytes.
    assert max(len(value or b"") for value in found) < 800
    assert [v for v in found if not is_locator(v)] == [
        v for v in expected if len(v or b"") <= LARGEST
    ]
    # In any order, with repeated rows, 32-bit offsets, and bytes of others between.
    monkeypatch.setattr("lance_spark.scan.fragment.column_reader.WINDOW_BYTES", 20_000)
    whole = pa.Table.from_batches(rows).set_column(
        1, "b", pa.chunked_array([pa.array(found, pa.binary())])
    )
    order = [*range(len(expected)), *range(len(expected) - 1, -1, -3), 7, 7, 7]
    pieces = list(resolved(iter(whole.take(order).combine_chunks().to_batches()), SOURCES))
    assert values(iter(pieces)) == [expected[index] for index in order]
    assert {piece.schema.field("b").type for piece in pieces} == {pa.large_binary()}
    sizes = [piece.column("b").nbytes for piece in pieces]
    assert len(sizes) > 5
    assert max(sizes) < 20_000 + 6_500 + 8 * 1_000


def test_bytes_are_not_taken_for_locators() -> None:
    others = [b"", None, MARK, MARK[:15] + b"x" * 100, b"x" * 16 + MARK * 9, bytes(500)]
    batch = pa.record_batch({"b": pa.array(others, pa.binary()), "n": pa.array(range(6))})
    (result,) = resolved(
        iter(
            [
                batch,
            ]
        ),
        SOURCES,
    )
    assert result.column("b").to_pylist() == others
    assert list(resolved(iter([batch]), None)) == [batch]


@pytest.mark.parametrize("below", [False, True])
def test_objects_outside_the_table(tmp_path: Path, below: bool) -> None:
    objects = tmp_path / "objects"
    objects.mkdir()
    data = bytes(range(256)) * 8
    (objects / "f é.bin").write_bytes(data)
    (objects / "g.bin").write_bytes(data[7:])
    uri, other = ((objects / name).as_uri() for name in ("f é.bin", "g.bin"))
    blobs = [
        Blob.from_uri(uri),
        Blob.from_uri(uri, 10, 500),
        None,
        Blob.from_bytes(b"small"),
        Blob.from_uri(other, 5, 20),
        Blob.from_bytes(data * 3),
        Blob.from_uri(other),
    ]
    expected = [data, data[10:510], None, b"small", data[12:32], data * 3, data[7:]]
    base = DatasetBasePath(objects.as_uri(), name="a", is_dataset_root=False)
    options: dict[str, Any] = (
        {"initial_bases": [base]} if below else {"allow_external_blob_outside_bases": True}
    )
    path = tmp_path / "t"
    lance.write_dataset(
        table(extended(blobs * 2)), str(path), data_storage_version="2.2", **options
    )
    rows = list(copied(path))
    assert sum(map(is_locator, values(iter(rows)))) == 8
    assert values(resolved(iter(rows), SOURCES)) == expected * 2
    (objects / "g.bin").unlink()
    with pytest.raises(MissingFileError, match=r"g\.bin"):
        list(resolved(iter(rows), SOURCES))


def test_files_of_other_tables(tmp_path: Path) -> None:
    """A clone refers to files of its source by a base path, and a branch has a root of its own."""
    first, second = random_values(40), random_values(40, seed=1)
    lance.write_dataset(table(extended(first)), str(tmp_path / "t"), data_storage_version="2.2")
    lance_spark.open_dataset(str(tmp_path / "t")).shallow_clone(str(tmp_path / "u"))
    lance.write_dataset(table(extended(second)), str(tmp_path / "u"), mode="append")
    branch = lance.dataset(str(tmp_path / "t")).create_branch("b")
    lance.write_dataset(table(extended(second)), branch, mode="append")
    for path, options in ((tmp_path / "u", {}), (tmp_path / "t", {"branch": "b"})):
        rows = list(copied(path, **options))
        assert any(map(is_locator, values(iter(rows))))
        assert values(resolved(iter(rows), SOURCES)) == [*first, *second]
