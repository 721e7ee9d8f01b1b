from __future__ import annotations

import struct
import time
import tracemalloc

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lance_spark.errors import CorruptFileError, InvalidInputError, LanceError
from lance_spark.file.footer import Tail, encode_tail, parse_descriptor, read_columns, read_footer
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import file2_pb2
from lance_spark.storage.local import LocalSource
from tests.file.sources import MemorySource

VERSIONS = ["2.0", "2.1", "2.2"]
ROWS = 400


def table() -> pa.Table:
    numbers = range(ROWS)
    pair = pa.struct([("p", pa.int32()), ("q", pa.string())])
    packed = pa.struct([("u", pa.int32()), ("v", pa.int64()), ("w", pa.int32())])
    columns = {
        "a": pa.array([None if i % 7 == 0 else i for i in numbers], pa.int64()),
        "s": pa.array([{"x": i, "y": {"z": f"s{i}", "k": i % 3}} for i in numbers]),
        "l": pa.array(
            [None if i % 5 == 0 else [i] * (i % 4) for i in numbers], pa.list_(pa.int16())
        ),
        "t": pa.array([f"text {i}" * (i % 3) for i in numbers]),
        "ls": pa.array([[{"p": i, "q": str(i)}] * (i % 3) for i in numbers], pa.list_(pair)),
        "pk": pa.array([{"u": i, "v": -i, "w": i * 2} for i in numbers], packed),
        "d": pa.array([f"word {i % 5}" for i in numbers]).dictionary_encode(),
        "b": pa.array([i % 2 == 0 for i in numbers]),
    }
    fields = [
        pa.field(name, array.type, metadata={"packed": "true"} if name == "pk" else None)
        for name, array in columns.items()
    ]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


@pytest.fixture(scope="module")
def data() -> pa.Table:
    return table()


@pytest.fixture(scope="module", params=VERSIONS)
def version(request) -> str:
    return request.param


@pytest.fixture
def reader(path):
    reader = FileReader.open(LocalSource(str(path)))
    yield reader
    reader.close()


def as_table(reader: FileReader, fields, rows, column_of=None) -> pa.Table:
    arrays = reader.read(fields, rows, column_of)
    for array in arrays:
        array.validate(full=True)
    return pa.table(arrays, schema=pa.schema([field.arrow_field for field in fields]))


ROW_SETS = {
    "all": range(ROWS),
    "first": range(1),
    "middle": range(123, 301),
    "last": range(ROWS - 1, ROWS),
    "none": range(5, 5),
    "some": np.array([0, 1, 7, 120, 398, 399]),
    "no numbers": np.zeros(0, np.int64),
}


@pytest.mark.parametrize("rows", ROW_SETS.values(), ids=ROW_SETS)
def test_rows_are_those_that_pylance_wrote(reader, data, rows) -> None:
    assert reader.num_rows == ROWS
    assert reader.schema.to_arrow().equals(data.schema, check_metadata=True)
    rows_read = as_table(reader, reader.schema.fields, rows)
    assert rows_read.equals(data.take(pa.array(rows, pa.int64())))


@pytest.mark.parametrize("name", ["s.y.k", "ls.item.q", "pk.v", "pk.w", "s.x"])
def test_parts_of_structs(reader, data, name) -> None:
    selected = reader.schema.select([name])
    rows_read = as_table(reader, selected.fields, range(10, 20))
    assert rows_read.schema == selected.to_arrow()
    whole = data.slice(10, 10).to_pylist()
    top, *rest = name.split(".")
    for ours, theirs in zip(rows_read.to_pylist(), whole, strict=True):
        values = [(ours[top], theirs[top])]
        for part in rest:
            if part == "item":
                values = [pair for a, b in values for pair in zip(a, b, strict=True)]
            else:
                assert all(set(a) == {part} for a, _ in values)
                values = [(a[part], b[part]) for a, b in values]
        assert all(a == b for a, b in values)


def test_several_fields_in_any_order(reader, data) -> None:
    selected = reader.schema.select(["t", "s.x", "pk.u", "a", "pk.v"])
    rows_read = as_table(reader, selected.fields, range(ROWS))
    assert rows_read["t"].equals(data["t"])
    assert rows_read["a"].equals(data["a"])
    assert rows_read["pk"].to_pylist() == [{"u": i, "v": -i} for i in range(ROWS)]


def test_columns_may_come_from_the_manifest(data, version, tmp_path) -> None:
    dataset = lance.write_dataset(data, str(tmp_path / "t"), data_storage_version=version)
    (file,) = dataset.get_fragments()[0].metadata.files
    reader = FileReader.open(LocalSource(str(tmp_path / "t/data" / file.path)))
    columns = dict(zip(file.fields, file.column_indices, strict=True))
    assert as_table(reader, reader.schema.fields, range(ROWS), columns).equals(data)
    assert columns == reader.own_columns
    # The field may have another name: only the id counts.
    renamed = Field("renamed", 77, "bool", nullable=False)
    rows_read = as_table(reader, [renamed], range(4), {77: columns[reader.schema.field("b").id]})
    assert rows_read["renamed"].to_pylist() == [True, False, True, False]


def test_a_field_without_a_column_is_named(reader, path) -> None:
    stranger = Field("stranger", 99, "int8")
    with pytest.raises(CorruptFileError, match=rf"{path}.*'stranger' \(id 99\)"):
        reader.read([stranger], range(1))
    with pytest.raises(CorruptFileError, match="'a'"):
        reader.read(reader.schema.fields, range(1), {0: -1})
    assert reader.column_bytes([stranger]) == 0


@pytest.mark.parametrize(
    "rows", [range(-1, 3), range(ROWS + 1), np.array([-1, 3]), np.array([3, ROWS]), range(0, 9, 2)]
)
def test_rows_outside_the_file_are_refused(reader, rows) -> None:
    with pytest.raises(InvalidInputError):
        reader.read(reader.schema.fields, rows)


def test_column_bytes_are_those_that_pylance_counts(path, reader) -> None:
    theirs = LanceFileReader(str(path)).metadata()
    expected = sum(b.size for c in theirs.columns for page in c.pages for b in page.buffers)
    assert reader.column_bytes(reader.schema.fields) == expected
    parts = [reader.column_bytes([field]) for field in reader.schema.fields]
    assert sum(parts) == expected
    assert all(parts)


def test_fields_are_read_in_step_and_metadata_once(raw) -> None:
    source = MemorySource(raw)
    reader = FileReader.open(source)
    columns = [reader.schema.field(name) for name in ("a", "b", "t")]
    reader.read(columns[:1], range(ROWS))
    first = len(source.calls)
    reader.read(columns, range(ROWS))
    # All columns are read together, in as many rounds as the longest column needs.
    second = len(source.calls) - first
    assert second <= 2
    reader.read(columns, range(ROWS))
    assert len(source.calls) - first - second <= second


def test_zero_rows(data, version, tmp_path) -> None:
    with LanceFileWriter(str(tmp_path / "f.lance"), data.schema, version=version):
        pass
    reader = FileReader.open(LocalSource(str(tmp_path / "f.lance")))
    assert reader.num_rows == 0
    assert as_table(reader, reader.schema.fields, range(0)).equals(data.slice(0, 0))
    assert reader.column_bytes(reader.schema.fields) == 0


def test_a_file_that_fails_to_open_is_closed() -> None:
    source = MemorySource(b"no" * 100)
    with pytest.raises(CorruptFileError):
        FileReader.open(source)
    assert source.closed


def test_close_closes_the_source(raw) -> None:
    source = MemorySource(raw)
    reader = FileReader.open(source)
    (array,) = reader.read(reader.schema.fields[:1], range(3))
    reader.close()
    assert source.closed
    assert array.to_pylist() == [None, 1, 2]


def test_pages_must_have_the_rows_of_the_file(raw) -> None:
    tail = Tail(MemorySource(raw))
    footer = read_footer(tail)
    descriptor = parse_descriptor(footer.descriptor)
    descriptor.length = ROWS + 1
    start = footer.global_buffers[0].offset
    columns = [raw[at : at + size] for at, size in footer.column_metadata.tolist()]
    patched = raw[:start] + b"".join(encode_tail(footer.version, descriptor, columns, start))
    reader = FileReader.open(MemorySource(patched))
    for field in reader.schema.fields:
        with pytest.raises(CorruptFileError, match=r"memory\.lance.*400"):
            reader.read([field], range(1))


def test_types_that_no_version_knows_name_file_and_column(raw) -> None:
    reader = FileReader.open(MemorySource(raw))
    alien = Field("alien", 0, "quaternion")
    with pytest.raises(LanceError, match="'alien'"):
        reader.read([alien], range(1))


def test_fixed_size_lists_of_structs(file_of) -> None:
    dtype = pa.list_(pa.struct([("x", pa.int8()), ("y", pa.string())]), 2)
    rows = [[{"x": i, "y": str(i)}, {"x": -i, "y": None}] for i in range(50)]
    rows[7] = None
    data = pa.table({"f": pa.array(rows, dtype), "n": range(50)})
    reader = FileReader.open(LocalSource(str(file_of(data, "2.2"))))
    assert as_table(reader, reader.schema.fields, range(3, 31)).equals(data.slice(3, 28))
    part = reader.schema.select(["f.item.y"])
    assert as_table(reader, part.fields, np.array([7, 9]))["f"].to_pylist() == [
        None,
        [{"y": "9"}, {"y": None}],
    ]


def test_packed_structs_below_lists(version, tmp_path) -> None:
    item = pa.field("item", pa.struct([("u", pa.int32()), ("v", pa.int32())]), metadata={"packed": "true"})  # fmt: skip
    rows = [None if i % 9 == 0 else [{"u": i, "v": j} for j in range(i % 4)] for i in range(60)]
    data = pa.table(
        {"l": pa.array(rows, pa.list_(item))}, schema=pa.schema([("l", pa.list_(item))])
    )
    with LanceFileWriter(str(tmp_path / "f.lance"), version=version) as writer:
        writer.write_batch(data)
    reader = FileReader.open(LocalSource(str(tmp_path / "f.lance")))
    assert as_table(reader, reader.schema.fields, range(60)).equals(data)
    part = as_table(reader, reader.schema.select(["l.item.v"]).fields, range(5, 45))
    expected = [None if r is None else [{"v": x["v"]} for x in r] for r in rows[5:45]]
    assert part["l"].to_pylist() == expected


def small_file(version: str, path) -> bytes:
    data = pa.table(
        {
            "a": pa.array([None if i % 7 == 0 else i for i in range(60)]),
            "t": [f"text {i}" for i in range(60)],
            "l": [[i] * (i % 4) for i in range(60)],
            "s": [{"x": i} for i in range(60)],
        }
    )
    with LanceFileWriter(str(path), version=version) as writer:
        writer.write_batch(data)
    return path.read_bytes()


def attempt(data: bytes) -> None:
    """Read everything in a file; any fault must be raised as LanceError, soon and cheaply."""
    started = time.process_time()
    try:
        reader = FileReader.open(MemorySource(data))
        rows = range(min(reader.num_rows, 1000))
        for field in reader.schema.fields:
            reader.read([field], rows)
    except LanceError as error:
        assert str(error)  # noqa: PT017
    assert time.process_time() - started < 1


def test_truncated_files(version, tmp_path) -> None:
    data = small_file(version, tmp_path / "f.lance")
    for length in {*range(0, len(data), 64), *range(len(data) - 130, len(data))}:
        with pytest.raises(LanceError, match=r"memory\.lance"):
            FileReader.open(MemorySource(data[:length]))


def test_flipped_bits(version, tmp_path) -> None:
    data = small_file(version, tmp_path / "f.lance")
    footer = read_footer(Tail(MemorySource(data)))
    start = footer.global_buffers[0].offset
    tables = struct.unpack_from("<Q", data, len(data) - 32)[0]
    # All bits of tables and footer, and one bit of every third byte before them.
    bits = [8 * at + at % 8 for at in range(start, tables, 3)]
    bits += range(8 * tables, 8 * len(data))
    for bit in bits:
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << (bit % 8)
        attempt(bytes(damaged))


def test_random_bytes_in_the_metadata(version, tmp_path) -> None:
    data = small_file(version, tmp_path / "f.lance")
    footer = read_footer(Tail(MemorySource(data)))
    start = footer.global_buffers[0].offset
    rng = np.random.default_rng(3)
    tracemalloc.start()
    try:
        for _ in range(300):
            damaged = bytearray(data)
            at = int(rng.integers(start, len(data)))
            size = int(rng.integers(1, 9))
            damaged[at : at + size] = rng.bytes(size)[: len(data) - at]
            attempt(bytes(damaged))
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("buffers", [[(0, 0)], [(0, 8)] * 3, [], [(0, 2**20)]])
def test_pages_with_other_buffers(version, tmp_path, buffers) -> None:
    data = small_file(version, tmp_path / "f.lance")
    tail = Tail(MemorySource(data))
    footer = read_footer(tail)
    descriptor = parse_descriptor(footer.descriptor)
    count = len(footer.column_metadata)
    assert read_columns(tail, footer, range(count))
    for victim in range(count):
        columns = [data[at : at + size] for at, size in footer.column_metadata.tolist()]
        proto = file2_pb2.ColumnMetadata.FromString(columns[victim])
        for page in proto.pages:
            page.buffer_offsets[:] = [offset for offset, _ in buffers]
            page.buffer_sizes[:] = [size for _, size in buffers]
        columns[victim] = proto.SerializeToString()
        start = footer.global_buffers[0].offset
        attempt(data[:start] + b"".join(encode_tail(footer.version, descriptor, columns, start)))


def test_the_schema_of_the_file_is_a_schema(reader) -> None:
    assert isinstance(reader.schema, Schema)
    assert reader.version in ((2, 0), (2, 1), (2, 2))
