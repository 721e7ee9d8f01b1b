"""Files of version 0.1: the container, reads, and damaged files.

pylance writes the files.
"""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from lance_spark.file.open import open_file
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.file.v0_1.statistics import prune
from lance_spark.proto import file_pb2, table_pb2
from tests.file.sources import MemorySource
from tests.file.v0_1.legacy_files import ROWS, FileOf, field, opened, parts, sample, with_metadata
from tests.support.cells import number_of

FLIPS = number_of(30, 1_000)


def test_metadata_of_a_file(data: bytes) -> None:
    reader, source = opened(data)
    assert reader.version == (0, 1)
    assert reader.num_rows == ROWS
    assert reader.schema.names == ["i", "s", "b", "l", "t", "v", "n", "d"]
    assert reader.column_bytes([field(reader, "i")]) == 8 * ROWS
    assert reader.column_bytes([field(reader, "v"), field(reader, "d")]) == 17 * ROWS
    (texts,) = reader.read([field(reader, "s")], range(ROWS))
    exact = texts.buffers()[2].size + 8 * (ROWS + 2)
    assert reader.column_bytes([field(reader, "s")]) == pytest.approx(exact, rel=0.05)
    reader.close()
    assert source.closed


def test_the_reader_is_chosen_by_the_footer(file_of: FileOf) -> None:
    table = pa.table({"i": [1, 2, 3]})
    for version, reader_class in (
        ("0.1", LegacyFileReader),
        ("2.0", FileReader),
        ("2.2", FileReader),
    ):
        source = MemorySource(file_of(table, version).read_bytes())
        reader = open_file(source)
        assert type(reader) is reader_class
        assert len(source.calls) == 1
    with pytest.raises(CorruptFileError, match="LANC"):
        open_file(MemorySource(bytes(100)))
    with pytest.raises(CorruptFileError, match="too few"):
        open_file(MemorySource(b"LANC"))
    with pytest.raises(UnsupportedFeatureError, match=r"7\.0"):
        open_file(MemorySource(bytes(60) + struct.pack("<HH4s", 7, 0, b"LANC")))


def test_numbers_of_requests_for_rows(file_of: FileOf) -> None:
    table = pa.table({"i": np.arange(300_000), "s": [f"{i}" for i in range(300_000)]})
    source = MemorySource(file_of(table, "0.1").read_bytes())
    reader = open_file(source)
    assert len(source.calls) == 1
    number, text = (reader.schema.field(name) for name in "is")
    # The page table lies before the tail; then one read for a value, two for a string.
    for wanted, reads in ((number, 1), (text, 2)):
        reader.read([wanted], np.array([7]))
        for rows in (np.array([150_000]), np.array([5, 6, 1_023, 1_024, 299_999])):
            source.calls.clear()
            (result,) = reader.read([wanted], rows)
            assert len(source.calls) == reads
            assert result.to_pylist() == table[wanted.name].take(pa.array(rows)).to_pylist()
            assert sum(length for call in source.calls for _, length in call) <= 30 * len(rows)
    source.calls.clear()
    (result,) = reader.read([number], range(1_000, 250_000))
    assert result.equals(table["i"].combine_chunks()[1_000:250_000])
    assert len(source.calls) == 1


def test_pages_that_follow_one_another_are_one_range(file_of: FileOf) -> None:
    table = pa.table({"i": np.arange(100_000)})
    reader, source = opened(file_of(table, "0.1").read_bytes())
    reader.read(reader.schema.fields, range(1))
    source.calls.clear()
    (result,) = reader.read(reader.schema.fields, range(100_000))
    assert [len(call) for call in source.calls] == [1]
    assert result.equals(table["i"].combine_chunks())


def test_rows_outside(data: bytes) -> None:
    reader, _ = opened(data)
    for rows in (range(1_090, 1_101), np.array([-1, 5]), np.array([1_100]), range(0, 10, 2)):
        with pytest.raises(InvalidInputError):
            reader.read(reader.schema.fields, rows)
    assert [len(a) for a in reader.read(reader.schema.fields, range(5, 5))] == [0] * 8


def test_fields_that_are_not_there(data: bytes) -> None:
    reader, _ = opened(data)
    for id_ in (-1, 90_000, 2**31 - 1):
        with pytest.raises(CorruptFileError):
            reader.read([Field("z", id_, "int64")], range(10))
    assert reader.column_bytes([Field("z", 90_000, "int64")]) == 0


def later_file(tmp_path: Path) -> tuple[bytes, pa.Table]:
    """A file of columns that were added to a table."""
    import lance

    # pylance takes no nulls there.
    added = sample(nulls=0.0).drop_columns(["d", "n"])
    added = added.rename_columns([f"added_{name}" for name in added.column_names])
    base = pa.table(
        {"id": np.arange(ROWS), "s": pa.StructArray.from_arrays([pa.nulls(ROWS, pa.int8())], ["c"])}
    )
    dataset = lance.write_dataset(base, str(tmp_path / "t"), data_storage_version="0.1")
    dataset.merge(added.append_column("id", base["id"]), "id")
    (newest,) = [
        file
        for file in (tmp_path / "t" / "data").iterdir()
        if parts(file.read_bytes())[1].fields[0].id
    ]
    return newest.read_bytes(), lance.dataset(str(tmp_path / "t")).to_table().drop_columns(
        ["id", "s"]
    )


@pytest.mark.parametrize("minor", [0, 1, 2])
@pytest.mark.parametrize("statistics", [True, False])
def test_page_tables_of_added_columns(tmp_path: Path, minor: int, statistics: bool) -> None:
    data, expected = later_file(tmp_path)
    metadata, manifest = parts(data)
    first = min(f.id for f in manifest.fields)
    last = max(f.id for f in manifest.fields)
    assert first == 3
    if not statistics:
        metadata.ClearField("statistics")
    batches = len(metadata.batch_offsets) - 1
    width = 16 * batches
    entries = data[metadata.page_table_position :][: (last - first + 1) * width]
    files = {"from the first id on": with_metadata(data, metadata, minor)}
    if minor < 2:
        metadata.page_table_position = len(data)
        longer = data + bytes(first * width) + entries
        files["from 0 on"] = with_metadata(longer, metadata, minor)
    for name, file in files.items():
        for ids in ((), tuple(range(first, last + 1)), (-2, *range(first + 1, last + 1))):
            reader = open_file(MemorySource(file), ids)
            for schema_field in reader.schema.fields:
                (result,) = reader.read([schema_field], range(ROWS))
                assert result.equals(expected[schema_field.name].combine_chunks()), (
                    name,
                    ids,
                    schema_field.name,
                )


def test_a_file_without_a_schema(data: bytes) -> None:
    reader, _ = opened(data)
    fields = [f for f in reader.schema.fields if f.name != "d"]
    metadata, _ = parts(data)
    metadata.ClearField("manifest_position")
    bare = with_metadata(data, metadata)
    ids = tuple(node.id for f in reader.schema.fields for node in f.walk())
    bare_reader = open_file(MemorySource(bare), ids)
    assert bare_reader.schema.fields == ()
    assert bare_reader.num_rows == ROWS
    for ours, theirs in zip(
        bare_reader.read(fields, range(ROWS)), reader.read(fields, range(ROWS)), strict=True
    ):
        assert ours.equals(theirs)
    with pytest.raises(CorruptFileError, match="dictionary"):
        bare_reader.read([field(reader, "d")], range(1))


# Damage


def read_all(data: bytes) -> None:
    reader = open_file(MemorySource(data))
    for schema_field in reader.schema.fields:
        for rows in (range(reader.num_rows), np.array([0, 5, 1_050])):
            if len(rows) and rows[-1] < reader.num_rows:
                (result,) = reader.read([schema_field], rows)
                result.validate()
        reader.column_bytes([schema_field])
        if isinstance(reader, LegacyFileReader):
            statistics = reader.statistics(schema_field.id)
            if statistics is not None:
                prune(statistics, "==", 1)


def survives(data: bytes, note: str) -> None:
    """Reads return values or raise an error of this package, soon, and with little memory."""
    tracemalloc.start()
    started = time.process_time()
    try:
        read_all(data)
    except LanceError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 << 20, note
    assert time.process_time() - started < 5, note


def test_truncated_files(data: bytes) -> None:
    for length in [*range(40), *range(40, len(data), len(data) // 60)]:
        with pytest.raises(LanceError):
            read_all(data[:length])
        # The tail exists, but the bytes to which it points are missing.
        survives(data[length:], f"without the first {length}")


@pytest.mark.slow
def test_flipped_bytes(data: bytes) -> None:
    rng = random.Random(4)
    metadata, _ = parts(data)
    for turn in range(FLIPS):
        changed = bytearray(data)
        start = metadata.page_table_position if turn % 4 else 0
        for _ in range(rng.choice([1, 1, 2, 8])):
            at = rng.randrange(start, len(data))
            changed[at] = rng.choice([0, 255, 1, 128, rng.randrange(256)])
        survives(bytes(changed), f"turn {turn}")


NUMBERS = [0, 1, -1, 7, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**62)]


@pytest.mark.slow
def test_page_tables_that_lie(data: bytes) -> None:
    metadata, manifest = parts(data)
    entries = (1 + max(f.id for f in manifest.fields)) * (len(metadata.batch_offsets) - 1) * 2
    rng = random.Random(5)
    for entry in range(entries):
        for number in NUMBERS if entry % 12 == 0 else rng.sample(NUMBERS, 2):
            changed = bytearray(data)
            struct.pack_into("<q", changed, metadata.page_table_position + 8 * entry, number)
            survives(bytes(changed), f"entry {entry} is {number}")


@pytest.mark.slow
def test_offsets_that_lie(data: bytes) -> None:
    reader, _ = opened(data)
    rng = random.Random(6)
    metadata, _ = parts(data)
    batches = len(metadata.batch_offsets) - 1
    for name in ("s", "l", "l.item", "t.x", "t.x.item", "n"):
        id_ = field(reader, name).id
        width = 4 if name in ("l", "l.item", "t.x", "n") else 8
        at = metadata.page_table_position + id_ * batches * 16
        position, length = struct.unpack_from("<qq", data, at)
        for _ in range(12):
            changed = bytearray(data)
            for _ in range(rng.choice([1, 2])):
                number = rng.choice(NUMBERS) & (2 ** (8 * width) - 1)
                place = position + width * rng.randrange(length)
                changed[place : place + width] = number.to_bytes(width, "little")
            survives(bytes(changed), f"offsets of {name}")


def test_metadata_that_lies(data: bytes) -> None:
    metadata, _ = parts(data)
    for number in (0, 1, len(data) - 20, len(data), 2**31, 2**62, 2**63 - 1, 2**64 - 1):
        for name in ("manifest_position", "page_table_position"):
            changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
            setattr(changed, name, number)
            survives(with_metadata(data, changed), f"{name} is {number}")
        changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
        changed.statistics.page_table_position = number
        survives(with_metadata(data, changed), f"statistics at {number}")
        survives(data[:-16] + struct.pack("<QHH4s", number, 0, 2, b"LANC"), f"metadata at {number}")
    for offsets in ([], [0], [5], [0, 10, 5], [0, -1], [0, 2**31 - 1], [0] * 10_000, [-5, 0, 5]):
        changed = file_pb2.Metadata.FromString(metadata.SerializeToString())
        changed.batch_offsets[:] = offsets
        survives(with_metadata(data, changed), f"batches {offsets[:5]}")


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 3), (-1, 3), (2**62, 3), (100, 2**62), (100, -1), (100, 2**20)]
)
def test_dictionaries_that_lie(data: bytes, offset: int, length: int) -> None:
    metadata, manifest = parts(data)
    for message_field in manifest.fields:
        if message_field.logical_type.startswith("dict"):
            message_field.dictionary.offset, message_field.dictionary.length = offset, length
    message = manifest.SerializeToString()
    metadata.manifest_position = len(data)
    file = with_metadata(data + struct.pack("<I", len(message)) + message, metadata)
    survives(file, f"dictionary {offset}, {length}")
    reader, _ = opened(file)
    with pytest.raises(CorruptFileError):
        reader.read([field(reader, "d")], range(ROWS))


def test_schemas_that_are_no_trees(data: bytes) -> None:
    metadata, manifest = parts(data)
    for change in ("deep", "twice", "orphan"):
        changed_manifest = table_pb2.Manifest.FromString(manifest.SerializeToString())
        if change == "deep":
            for i in range(100, 1_500):
                changed_manifest.fields.add(
                    id=i, parent_id=i - 1 if i > 100 else -1, logical_type="list", name="x"
                )
        changed_manifest.fields.add(
            id=0 if change == "twice" else 50,
            parent_id=77 if change == "orphan" else -1,
            logical_type="int8",
            name="z",
        )
        message = changed_manifest.SerializeToString()
        metadata.manifest_position = len(data)
        file = with_metadata(data + struct.pack("<I", len(message)) + message, metadata)
        with pytest.raises(CorruptFileError):
            open_file(MemorySource(file))
