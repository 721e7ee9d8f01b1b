from __future__ import annotations

import itertools

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.errors import (
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
    UnsupportedEncodingError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from lance_spark.file.checks import DictionaryCapacity
from lance_spark.file.footer import Tail, read_columns, read_footer
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter, WrittenFile
from tests.file.sources import MemoryOutput, MemorySource
from tests.file.test_reader import as_table, table

VERSIONS = [(2, 1), (2, 2), (2, 3)]


@pytest.fixture(params=VERSIONS, ids=["2.1", "2.2", "2.3"])
def version(request) -> tuple[int, int]:
    return request.param


def written(
    data: pa.Table, version: tuple[int, int] = (2, 2), page_bytes: int = 2**23, batch: int = 100
) -> tuple[bytes, WrittenFile]:
    output = MemoryOutput()
    writer = FileWriter(output, Schema.from_arrow(data.schema), version, page_bytes)
    for piece in data.to_batches(max_chunksize=batch):
        writer.write(piece)
    assert writer.tell() == len(output.data)
    info = writer.finish()
    return output.data, info


def pylance_reads(raw: bytes, path) -> pa.Table:
    path.write_bytes(raw)
    return LanceFileReader(str(path)).read_all().to_table()


def decoded(data: pa.Table) -> pa.Table:
    """Return the data without dictionaries: readers may join the dictionaries of several pages in
    any way.
    """
    plain = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in data.schema
    ]
    return data.cast(pa.schema(plain))


def we_read(raw: bytes) -> pa.Table:
    reader = FileReader.open(MemorySource(raw))
    return as_table(reader, reader.schema.fields, range(reader.num_rows))


def pages_of(raw: bytes):
    tail = Tail(MemorySource(raw))
    footer = read_footer(tail)
    return [
        column.pages for column in read_columns(tail, footer, range(len(footer.column_metadata)))
    ]


@pytest.mark.parametrize("page_bytes", [2**23, 500])
def test_pylance_reads_written_files(version, page_bytes, tmp_path) -> None:
    data = table().replace_schema_metadata({"about": "this"})
    raw, info = written(data, version, page_bytes)
    assert info.num_rows == data.num_rows
    assert info.size_bytes == len(raw)
    assert decoded(pylance_reads(raw, tmp_path / "f.lance")).equals(decoded(data))
    assert LanceFileReader(str(tmp_path / "f.lance")).metadata().schema.metadata == {
        b"about": b"this"
    }
    assert decoded(we_read(raw)).equals(decoded(data))


def test_a_table_takes_our_file_under_the_names_that_pylance_would_give(version, tmp_path) -> None:
    data = table()
    number = f"{version[0]}.{version[1]}"
    theirs = lance.write_dataset(data, str(tmp_path / "theirs"), data_storage_version=number)
    (expected,) = theirs.get_fragments()[0].metadata.files
    raw, info = written(data, version)
    assert list(info.field_ids) == expected.fields
    assert list(info.column_indices) == expected.column_indices
    path = tmp_path / "ours"
    (path / "data").mkdir(parents=True)
    (path / "data" / "f.lance").write_bytes(raw)
    file = lance.fragment.DataFile(
        "f.lance", list(info.field_ids), list(info.column_indices), *version, len(raw)
    )
    fragment = lance.fragment.FragmentMetadata(0, [file], info.num_rows)
    operation = lance.LanceOperation.Overwrite(data.schema, [fragment])
    dataset = lance.LanceDataset.commit(str(path), operation)
    dataset.validate()
    assert dataset.to_table().equals(data)
    assert dataset.take([3, 399]).equals(data.take([3, 399]))


def test_buffers_are_aligned_and_gaps_filled_as_pylance_does(version, tmp_path) -> None:
    raw, _ = written(table(), version, 2000)
    end = read_footer(Tail(MemorySource(raw))).global_buffers[0]
    buffers = [b for pages in pages_of(raw) for page in pages for b in page.buffers]
    buffers = sorted([*buffers, end])
    at = 0
    for offset, length in buffers:
        assert offset % 64 == 0
        assert raw[at:offset] == b"H" * (offset - at)
        at = offset + length
    with LanceFileWriter(str(tmp_path / "f.lance"), version="2.2") as writer:
        writer.write_batch(table())
    theirs = (tmp_path / "f.lance").read_bytes()
    result = [b for pages in pages_of(theirs) for page in pages for b in page.buffers]
    first, second = sorted(b for b in result if b.length)[:2]
    gap = theirs[first.offset + first.length : second.offset]
    assert second.offset % 64 == 0
    assert gap == b"H" * len(gap) != b""


def test_columns_fill_their_pages_independently() -> None:
    rows = 4096
    rng = np.random.default_rng(0)
    wide = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 16)), 16)
    data = pa.table({"narrow": rng.integers(0, 2**60, rows), "wide": wide})
    raw, _ = written(data, page_bytes=32 * 1024)
    narrow, wide_pages = pages_of(raw)
    assert len(narrow) == 1
    assert 14 <= len(wide_pages) <= 17
    assert [p.priority for p in wide_pages] == [
        sum(p.num_rows for p in wide_pages[:i]) for i in range(len(wide_pages))
    ]
    # The narrow column was still waiting when most of the wide column had been written.
    assert narrow[0].buffers[0].offset > wide_pages[-2].buffers[0].offset
    assert we_read(raw).equals(data)


@pytest.mark.parametrize("batch", [7, 10**6])
def test_pages_of_any_batch_size_are_near_the_size_asked_for(batch) -> None:
    data = pa.table({"a": np.random.default_rng(0).integers(0, 2**62, 50_000)})
    raw, _ = written(data, page_bytes=80_000, batch=batch)
    (pages,) = pages_of(raw)
    assert sum(page.num_rows for page in pages) == 50_000
    assert all(4_000 < page.num_rows < 16_000 for page in pages)


def test_rows_of_very_different_sizes_are_cut_by_their_bytes(tmp_path) -> None:
    texts = ["x"] * 3000 + ["y" * 20_000] * 100 + ["z"] * 3000
    data = pa.table({"t": texts})
    raw, _ = written(data, page_bytes=50_000, batch=10_000)
    (pages,) = pages_of(raw)
    ends = np.cumsum([0] + [page.num_rows for page in pages])
    sizes = [sum(map(len, texts[a:b])) for a, b in itertools.pairwise(ends)]
    assert max(sizes) <= 100_000
    assert pylance_reads(raw, tmp_path / "f.lance").equals(data)


def test_one_row_larger_than_a_page(tmp_path) -> None:
    data = pa.table({"t": ["x" * 300_000, "y"], "l": [list(range(50_000)), []]})
    raw, _ = written(data, page_bytes=1000)
    assert pylance_reads(raw, tmp_path / "f.lance").equals(data)


def test_batches_that_share_a_dictionary_share_a_page(tmp_path) -> None:
    words = pa.array([f"a rather long word {i}" for i in range(2000)])
    codes = pa.array(np.random.default_rng(0).integers(0, 2000, 6000), pa.int32())
    data = pa.table({"d": pa.DictionaryArray.from_arrays(codes, words)})
    raw, _ = written(data, page_bytes=2 * words.nbytes, batch=10)
    assert len(pages_of(raw)[0]) == 1
    assert pylance_reads(raw, tmp_path / "f.lance").equals(data)


def test_dictionaries_that_differ_are_unified_or_refused(tmp_path, monkeypatch) -> None:
    dtype = pa.dictionary(pa.int8(), pa.string())
    pieces = [
        pa.array([f"{start + i}" for i in range(100)]).dictionary_encode().cast(dtype)
        for start in (0, 50, 100, 200)
    ]
    same = pa.table({"d": pa.chunked_array(pieces[:1] * 3)})
    raw, _ = written(same)
    assert len(pages_of(raw)[0]) == 1
    assert pylance_reads(raw, tmp_path / "f.lance")["d"].to_pylist() == same["d"].to_pylist()

    too_many = pa.table({"d": pa.chunked_array(pieces)})
    with pytest.raises(InvalidInputError, match=r"'d'.*more than 127 distinct values"):
        written(too_many)
    # Other writers give each dictionary its own page.
    monkeypatch.setattr(DictionaryCapacity, "add", lambda *_: None)
    raw, _ = written(too_many)
    assert len(pages_of(raw)[0]) == 4
    reader = FileReader.open(MemorySource(raw))
    for start in range(0, 400, 100):
        (values,) = reader.read(reader.schema.fields, range(start, start + 100))
        assert values.to_pylist() == too_many["d"].slice(start, 100).to_pylist()
    with pytest.raises(UnsupportedEncodingError, match=r"'d'.*fewer rows"):
        we_read(raw)


def test_extension_types_are_named_for_pylance(tmp_path) -> None:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8, dtype=np.float32)), 4)
    schema = Schema.from_arrow(pa.schema([("t", tensor)]))
    raw, _ = written(pa.table([values], schema=schema.to_arrow()))
    theirs = pylance_reads(raw, tmp_path / "f.lance")
    assert theirs.schema.field("t").type == tensor
    assert theirs["t"].combine_chunks().storage.equals(values)


def test_zero_rows(version, tmp_path) -> None:
    data = table().slice(0, 0)
    raw, info = written(data, version)
    assert info.num_rows == 0
    (tmp_path / "f.lance").write_bytes(raw)
    theirs = LanceFileReader(str(tmp_path / "f.lance"))
    assert theirs.metadata().num_rows == 0
    assert theirs.metadata().schema.equals(data.schema)
    assert we_read(raw).equals(data)


def test_no_columns() -> None:
    raw, info = written(pa.table({}))
    assert info.field_ids == ()
    assert FileReader.open(MemorySource(raw)).schema.fields == ()


def test_nulls_of_every_kind_of_column(version, tmp_path) -> None:
    data = table()
    for field in data.schema:
        nulls = pa.table({field.name: pa.nulls(1000, field.type)}, schema=pa.schema([field]))
        raw, _ = written(nulls, version)
        assert we_read(raw).equals(nulls), field
        assert pylance_reads(raw, tmp_path / "f.lance").equals(nulls), field


def test_waiting_rows_hold_no_memory_of_their_batches() -> None:
    schema = pa.schema([("flag", pa.bool_()), ("big", pa.binary())])
    writer = FileWriter(MemoryOutput(), Schema.from_arrow(schema), (2, 2), 200_000)
    before = pa.total_allocated_bytes()
    for _ in range(20):
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([[True] * 100, [b"x" * 10_000] * 100], schema=schema)
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(batch)
        # After a read from a stream, all columns of a batch lie in one piece of memory.
        writer.write(pa.ipc.open_stream(sink.getvalue()).read_next_batch())
        del sink, batch
    assert pa.total_allocated_bytes() - before < 3_000_000


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"b": [1], "a": ["x"]}),
        pa.record_batch({"a": [1]}),
        pa.record_batch({"a": [1], "b": [1]}),
        pa.record_batch({"a": pa.array([1], pa.int32()), "b": ["x"]}),
        pa.record_batch({"a": [[1]], "b": ["x"]}),
        pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"], pa.large_string())}),
        pa.record_batch({"a": pa.array([1]), "b": pa.array(["x"], pa.string_view())}),
    ],
    ids=lambda batch: str(batch.schema).replace("\n", ", "),
)
def test_batches_of_another_schema_are_refused(batch) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    writer = FileWriter(MemoryOutput(), Schema.from_arrow(schema), (2, 2))
    with pytest.raises(SchemaMismatchError, match=r"'a'|'b'"):
        writer.write(batch)
    writer.write(pa.record_batch({"a": [1], "b": ["x"]}))
    assert writer.finish().num_rows == 1


@pytest.mark.parametrize("number", [(0, 2), (0, 3), (2, 4)])
def test_versions_that_are_not_written_say_which_are(number) -> None:
    with pytest.raises(
        UnsupportedFeatureError, match=r"use data storage version 2\.0, 2\.1, 2\.2 or 2\.3"
    ):
        FileWriter(MemoryOutput(), Schema(()), number)


@pytest.mark.parametrize(
    "dtype", [pa.map_(pa.string(), pa.int8()), pa.list_(pa.struct([("a", pa.int8())]), 2)], ids=str
)
def test_types_that_are_newer_than_the_version_are_refused(dtype) -> None:
    schema = Schema.from_arrow(pa.schema([("s", pa.struct([("col", dtype)]))]))
    with pytest.raises(UnsupportedTypeError, match=r"'col'.*2\.2"):
        FileWriter(MemoryOutput(), schema, (2, 1))
    with pytest.raises(UnsupportedTypeError, match=r"'s\.col'.*2\.2"):
        FileWriter(MemoryOutput(), schema, (2, 0))
    FileWriter(MemoryOutput(), schema, (2, 2))


def test_blobs_need_a_writer_of_their_own(version) -> None:
    marked = pa.field("col", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    for field in (marked, lance.blob_field("col")):
        with pytest.raises(UnsupportedTypeError, match="'col'"):
            FileWriter(MemoryOutput(), Schema.from_arrow(pa.schema([field])), version)


def test_an_error_of_the_store_is_raised() -> None:
    class Full(MemoryOutput):
        def write(self, buffer: object) -> None:
            raise StorageError("disk full")

    data = table()
    writer = FileWriter(Full(), Schema.from_arrow(data.schema), (2, 2))
    writer.write(data.to_batches()[0])
    with pytest.raises(StorageError, match="disk full"):
        writer.finish()
