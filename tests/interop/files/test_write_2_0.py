"""Files of version 2.0 as this package writes them: what pylance reads, and the pages that pylance
would write.
"""

from __future__ import annotations

import decimal
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

import lance_spark
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedTypeError
from lance_spark.file.footer import Tail, read_columns, read_footer
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter, WrittenFile
from lance_spark.proto import encodings_v2_0_pb2 as pb
from lance_spark.storage.local import LocalSource
from lance_spark.storage.store import ObjectStore
from tests.interop.conftest import Pylance
from tests.support.interop.tables import (
    NESTED,
    NULLS,
    SCALARS,
    TABLES,
    VECTORS,
    assert_same,
    column,
    for_2_0,
    random_table,
)

PACKED = {"lance-encoding:packed": "true"}


def write_file(
    path: Path, table: pa.Table, page_bytes: int = 8 << 20, batch_rows: int = 1 << 20
) -> WrittenFile:
    output = ObjectStore.from_uri(str(path.parent)).open_output(path.name)
    writer = FileWriter(output, Schema.from_arrow(table.schema), (2, 0), page_bytes)
    for batch in table.to_batches(max_chunksize=batch_rows):
        writer.write(batch)
    written = writer.finish()
    output.close()
    assert written.size_bytes == path.stat().st_size
    return written


def messages(path: Path) -> Iterator[list[pb.ArrayEncoding]]:
    """Return the messages of the pages of each column."""
    tail = Tail(LocalSource(str(path)))
    footer = read_footer(tail)
    for meta in read_columns(tail, footer, range(len(footer.column_metadata))):
        yield [pb.ArrayEncoding.FromString(page.encoding) for page in meta.pages]


def values(array: pa.Array | pa.ChunkedArray) -> list[object]:
    return array.to_pylist()


def dictionaries(rows: int) -> dict[str, pa.Array]:
    rng = np.random.default_rng(rows)
    text = pa.array([f"v{i}" for i in range(7)])
    absent = rng.random(rows) < 0.2
    index = rng.integers(0, 7, rows)
    take = pa.DictionaryArray.from_arrays
    return {
        "plain": take(pa.array(index, pa.int32()), text),
        "nulls": take(pa.array(index, pa.int8(), mask=absent), text),
        "null_items": take(
            pa.array(index, pa.uint16(), mask=absent), pa.array([1, None, 3, 4, None, 6, 7])
        ),
        "flags": take(pa.array(index % 2, pa.uint64(), mask=absent), pa.array([True, False])),
        "binary": take(pa.array(index, pa.int64()), text.cast(pa.large_binary())),
        "all_null": pa.nulls(rows, pa.dictionary(pa.int16(), pa.string())),
    }


def packed(rows: int) -> pa.StructArray:
    rng = np.random.default_rng(rows)
    numbers = rng.integers(-(2**40), 2**40, rows)
    money = pa.array([decimal.Decimal(i) / 8 for i in range(rows)], pa.decimal128(20, 3))
    vectors = pa.FixedSizeListArray.from_arrays(rng.random(3 * rows).astype(np.float32), 3)
    children = [
        pa.array(numbers.astype(np.int8)),
        pa.array(numbers),
        money,
        vectors,
        pa.array([f"{i:03d}".encode()[-3:] for i in range(rows)], pa.binary(3)),
    ]
    return pa.StructArray.from_arrays(children, ["a", "b", "c", "d", "e"])


def all_types(rows: int, nulls: str) -> pa.Table:
    columns = {
        name: column(dtype, "low", nulls, rows, zlib.crc32(name.encode()))
        for name, dtype in {**SCALARS, **VECTORS, **NESTED}.items()
    }
    columns |= {
        "decimal256": column(pa.int64(), "low", nulls, rows, 1).cast(pa.decimal256(50, 3)),
        "texts": column(pa.string(), "random", nulls, rows, 2),
        "flags": column(pa.list_(pa.bool_(), 5), "low", nulls, rows, 3),
        "no_items": pa.array([[], None] * rows, pa.list_(pa.string())).slice(0, rows),
        "no_structs": pa.array([[]] * rows, pa.list_(pa.struct([("x", pa.int8())]))),
        "no_values": pa.nulls(rows, pa.list_(pa.null(), 2)),
        "no_children": pa.array([{}] * rows, pa.struct([])),
        **dictionaries(rows),
    }
    table = for_2_0(pa.table(columns))
    return table.append_column(pa.field("packed", packed(rows).type, metadata=PACKED), packed(rows))


def check(path: Path, table: pa.Table) -> None:
    """Read a file with pylance (all rows, a range, scattered rows) and with this package."""
    rows = table.num_rows
    reader = LanceFileReader(str(path))
    assert reader.metadata().num_rows == rows
    ours = FileReader.open(LocalSource(str(path)))
    wanted = {name: values(table[name]) for name in table.column_names}
    chosen = sorted({0, rows // 3, rows // 2, rows - 1}) if rows else []
    for name in table.column_names:
        part = LanceFileReader(str(path), columns=[name])
        assert values(part.read_all().to_table()[name]) == wanted[name], name
        if rows:
            taken_values = values(part.take_rows(chosen).to_table()[name])
            assert taken_values == [wanted[name][row] for row in chosen], name
            middle = values(part.read_range(rows // 4, rows // 2).to_table()[name])
            assert middle == wanted[name][rows // 4 : rows // 4 + rows // 2], name
    for name, array in zip(
        table.column_names, ours.read(ours.schema.fields, range(rows)), strict=True
    ):
        assert values(array) == wanted[name], name
    ours.close()


@pytest.mark.sample(9)
@pytest.mark.parametrize("rows", [0, 1, 1000, 1025])
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize("page_bytes", [8 << 20, 1500])
def test_every_type(tmp_path: Path, page_bytes: int, nulls: str, rows: int) -> None:
    table = all_types(rows, nulls)
    write_file(tmp_path / "f.lance", table, page_bytes, 200 if page_bytes < 2000 else 10_000)
    check(tmp_path / "f.lance", table)


@pytest.mark.sample(3)
@pytest.mark.parametrize("rows", [1, 99, 100, 1000])
@pytest.mark.parametrize("nulls", NULLS)
def test_a_page_is_encoded_as_pylance_does(tmp_path: Path, nulls: str, rows: int) -> None:
    # pylance writes values under nulls, so the test has none.
    table = all_types(rows, nulls)
    bare = [pa.array(values(c), c.type) for c in table.columns]
    table = pa.table(bare, schema=table.schema)
    write_file(tmp_path / "ours.lance", table)
    with LanceFileWriter(str(tmp_path / "theirs.lance"), table.schema, version="2.0") as writer:
        writer.write_batch(table)
    ours, theirs = messages(tmp_path / "ours.lance"), messages(tmp_path / "theirs.lance")
    for number, (our_message, their_message) in enumerate(zip(ours, theirs, strict=True)):
        # pylance makes a dictionary only of fewer than 100 items.
        if not (
            our_message[0].dictionary.num_dictionary_items >= 100
            and their_message[0].HasField("binary")
        ):
            assert our_message == their_message, number


def test_slices_are_written_without_what_surrounds_them(tmp_path: Path) -> None:
    table = all_types(1000, "some")
    for start, length in ((3, 500), (8, 8), (999, 1), (500, 0)):
        piece = table.slice(start, length)
        write_file(tmp_path / f"{start}.lance", piece)
        write_file(tmp_path / "copy.lance", pa.Table.from_batches([compact(piece)], table.schema))
        check(tmp_path / f"{start}.lance", piece)
        size = (tmp_path / f"{start}.lance").stat().st_size
        assert size == (tmp_path / "copy.lance").stat().st_size
        (tmp_path / "copy.lance").unlink()


def compact(table: pa.Table) -> pa.RecordBatch:
    columns = [pa.concat_arrays(c.chunks) if c.num_chunks else c for c in table.columns]
    return pa.RecordBatch.from_arrays(
        [pa.array([], c.type) if not len(c) else c for c in columns], schema=table.schema
    )


def test_bytes_under_nulls_are_not_written(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    buffers = [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"aaXYZb")]
    hidden = pa.Array.from_buffers(pa.string(), 3, buffers)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 3], pa.int32()), hidden, mask=pa.array([False, True, False])
    )
    table = pa.table({"s": hidden, "l": lists})
    assert values(table["l"]) == [["aa"], None, []]
    write_file(tmp_path / "f.lance", table)
    assert b"XYZ" not in (tmp_path / "f.lance").read_bytes()
    check(tmp_path / "f.lance", table)


@pytest.mark.parametrize(("scheme", "level"), [("zstd", None), ("zstd", "19"), ("lz4", None)])
def test_strings_are_compressed_on_request(tmp_path: Path, scheme: str, level: str | None) -> None:
    metadata = {"lance-encoding:compression": scheme}
    if level is not None:
        metadata["lance-encoding:compression-level"] = level
    text = pa.array([None if i % 9 == 4 else f"row number {i}" for i in range(3000)])
    dtypes = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.list_(pa.string())]
    arrays = [text.cast(dtype) for dtype in dtypes[:4]]
    arrays.append(pa.ListArray.from_arrays(pa.array(range(3001), pa.int32()), text))
    fields = [pa.field(f"c{i}", dtype, metadata=metadata) for i, dtype in enumerate(dtypes[:4])]
    fields.append(pa.field("l", pa.list_(pa.field("item", pa.string(), metadata=metadata))))
    table = pa.table(arrays, schema=pa.schema(fields))
    write_file(tmp_path / "f.lance", table)
    check(tmp_path / "f.lance", table)
    *columns, _, items = messages(tmp_path / "f.lance")
    for pages in [*columns, items]:
        compression = pages[0].binary.bytes.flat.compression
        assert compression.scheme == scheme
        assert compression.level == (19 if level else 0)
    plain = pa.table(arrays, names=table.column_names)
    write_file(tmp_path / "plain.lance", plain)
    saved = (tmp_path / "plain.lance").stat().st_size - (tmp_path / "f.lance").stat().st_size
    assert saved > 0.5 * 5 * text.nbytes * 0.5


def test_a_dictionary_for_few_strings_only(tmp_path: Path) -> None:
    def kinds(array: pa.Array) -> str:
        write_file(tmp_path / "f.lance", pa.table({"c": array}))
        check(tmp_path / "f.lance", pa.table({"c": array}))
        ((message,),) = messages(tmp_path / "f.lance")
        (tmp_path / "f.lance").unlink()
        return message.WhichOneof("array_encoding")

    text = pa.array([f"{i % 255}" for i in range(20_000)])
    assert kinds(text) == "dictionary"
    assert kinds(text.cast(pa.large_string())) == "binary"
    assert kinds(text.slice(0, 99)) == "binary"
    assert kinds(pa.array([f"{i % 256}" for i in range(20_000)])) == "binary"
    # The sample at the start has few distinct values, the whole column has many.
    late = pa.array(["a"] * 10_000 + [str(i) for i in range(10_000)])
    assert kinds(late) == "binary"


def test_indices_that_have_no_room_for_a_null(tmp_path: Path) -> None:
    text = pa.array([f"{i}" for i in range(128)])
    index = [*range(128), None]
    full = pa.DictionaryArray.from_arrays(pa.array(index, pa.int8()), text)
    with pytest.raises(InvalidInputError, match="wider index type"):
        write_file(tmp_path / "f.lance", pa.table({"c": full}))
    # Items without references are not stored.
    table = pa.table({"c": full.slice(64)})
    write_file(tmp_path / "g.lance", table)
    check(tmp_path / "g.lance", table)


@pytest.mark.sample(3)
@pytest.mark.parametrize("first", range(0, TABLES, 25))
def test_random_tables_in_small_pages(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + 25, TABLES)):
        table = for_2_0(random_table(100_000 + seed, max_rows=700))
        rng = np.random.default_rng(seed)
        page_bytes = int(rng.integers(1, 5000))
        path = tmp_path / f"{seed}.lance"
        write_file(path, table, page_bytes, int(rng.integers(1, 300)))
        assert_same(LanceFileReader(str(path)).read_all().to_table(), table, f"seed {seed}")
        if table.num_rows:
            rows = sorted(set(rng.integers(0, table.num_rows, 9).tolist()))
            taken_rows = LanceFileReader(str(path)).take_rows(rows).to_table()
            assert_same(taken_rows, table.take(rows), f"take, seed {seed}")


@pytest.mark.sample(3)
@pytest.mark.parametrize("nulls", ["none", "some"])
@pytest.mark.parametrize("pattern", ["constant", "low", "random", "long"])
def test_files_are_no_larger_than_those_of_pylance(
    tmp_path: Path, pattern: str, nulls: str
) -> None:
    for name, dtype in {**SCALARS, **VECTORS, **NESTED}.items():
        array = column(dtype, pattern, nulls, 5_000, zlib.crc32(name.encode()))
        table = for_2_0(pa.table({"c": array}))
        ours, theirs = tmp_path / f"{name}.lance", tmp_path / f"{name}.theirs"
        write_file(ours, table)
        with LanceFileWriter(str(theirs), table.schema, version="2.0") as writer:
            writer.write_batch(table)
        assert ours.stat().st_size <= 1.1 * theirs.stat().st_size + 4096, name


def test_both_clients_write_one_table(pylance: Pylance, tmp_path: Path) -> None:
    path = str(tmp_path / "t.lance")
    table = all_types(300, "some")
    lance_spark.write_dataset(table, path, data_storage_version="2.0", max_rows_per_file=128)
    theirs = lance.dataset(path)
    assert theirs.data_storage_version == "2.0"
    theirs.validate()
    for fragment in theirs.get_fragments():
        (file,) = fragment.data_files()
        assert (file.file_major_version, file.file_minor_version) == (2, 0)
        below_packed = [field.id() for field in theirs.lance_schema.field("packed").children()]
        assert not set(file.fields) & set(below_packed)
        assert list(file.column_indices) == list(range(len(file.fields)))
    wanted = table.to_pylist()
    assert theirs.to_table().to_pylist() == wanted
    rows = [0, 127, 128, 255, 299]
    assert theirs.take(rows).to_pylist() == [wanted[row] for row in rows]
    theirs.delete("int32 = 0 OR int32 IS NULL")
    kept = [row for row in wanted if row["int32"]]
    assert 0 < len(kept) < len(wanted)
    assert lance_spark.open_dataset(path).to_table().to_pylist() == kept
    lance.write_dataset(table, path, mode="append")
    lance_spark.write_dataset(table, path, mode="append")
    assert pylance.read(Path(path)).to_pylist() == kept + wanted + wanted
    assert lance_spark.open_dataset(path).to_table().to_pylist() == kept + wanted + wanted
    lance.dataset(path).optimize.compact_files()
    assert pylance.read(Path(path)).to_pylist() == kept + wanted + wanted


@pytest.mark.parametrize("rows", [0, 3])
def test_a_table_of_pylance_is_appended_to(pylance: Pylance, tmp_path: Path, rows: int) -> None:
    path = tmp_path / "t.lance"
    table = all_types(200, "some")
    pylance.write(table.slice(0, rows), path, "2.0")
    lance_spark.write_dataset(table, str(path), mode="append")
    assert pylance.read(path).to_pylist() == table.slice(0, rows).to_pylist() + table.to_pylist()
    with pytest.raises(InvalidOptionError, match=r"version 2\.0, and an append must use it"):
        lance_spark.write_dataset(table, str(path), mode="append", data_storage_version="2.2")


def test_an_overwrite_keeps_or_changes_the_version(pylance: Pylance, tmp_path: Path) -> None:
    path, table = tmp_path / "t.lance", pa.table({"a": [1, 2]})
    pylance.write(table, path, "2.0")
    for requested, expected in [
        (None, "2.0"),
        ("2.1", "2.1"),
        ("2.0", "2.0"),
        ("stable", "2.2"),
        ("next", "2.3"),
    ]:
        lance_spark.write_dataset(
            table, str(path), mode="overwrite", data_storage_version=requested
        )
        assert lance.dataset(str(path)).data_storage_version == expected
        assert pylance.read(path).equals(table)
    with pytest.raises(InvalidOptionError, match=r"'2\.4' is not a version"):
        lance_spark.write_dataset(table, str(path), mode="overwrite", data_storage_version="2.4")


PAIR = pa.struct([("x", pa.int8()), ("y", pa.int8())])
REFUSED = {
    "maps": (pa.field("c", pa.map_(pa.string(), pa.int8())), "'c'.*maps.*2.2"),
    "maps_below": (
        pa.field("c", pa.struct([("s", pa.list_(pa.map_(pa.string(), pa.int8())))])),
        r"'c\.s\.item'.*maps.*2.2",
    ),
    "vectors_of_structs": (
        pa.field("c", pa.list_(PAIR, 2)),
        "'c'.*fixed-size lists of struct.*2.2",
    ),
    "vectors_of_strings": (pa.field("c", pa.list_(pa.string(), 2)), "'c'.*lists of string"),
    "packed_strings": (
        pa.field("c", pa.struct([("s", pa.string())]), metadata=PACKED),
        "'c'.*child 's' of type string in a packed struct.*2.2",
    ),
    "packed_flags": (
        pa.field("c", pa.struct([("s", pa.bool_())]), metadata=PACKED),
        "'c'.*child 's' of type bool in a packed struct.*2.2",
    ),
    "packed_structs": (
        pa.field("c", pa.struct([("s", PAIR)]), metadata=PACKED),
        "'c'.*child 's' of type struct.* in a packed struct.*2.2",
    ),
    "packed_nothing": (pa.field("c", pa.struct([]), metadata=PACKED), "'c'.*without children.*2.2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_version_2_0_cannot_store_are_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    field, message = REFUSED[name]
    table = pa.schema([pa.field("id", pa.int64()), field]).empty_table()
    path = tmp_path / "t.lance"
    with pytest.raises(UnsupportedTypeError, match=message):
        lance_spark.write_dataset(table, str(path), data_storage_version="2.0")
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


NULLED = {
    "struct": (pa.array([{"x": 1, "y": 2}, None], PAIR), None, "'c': 1 structs are null.*2.2"),
    "inner": (
        pa.array([{"s": {"x": 1, "y": 2}}, {"s": None}], pa.struct([("s", PAIR)])),
        None,
        r"'c\.s': 1 structs are null.*2.2",
    ),
    "item": (
        pa.array([[{"x": 1, "y": 2}], [None, None], None], pa.list_(PAIR)),
        None,
        r"'c\.item': 2 structs are null.*2.2",
    ),
    "packed": (pa.array([{"x": 1, "y": 2}, None], PAIR), PACKED, "'c': 1 structs are null.*2.2"),
    "packed_child": (
        pa.array([{"x": 1, "y": 2}, {"x": 1, "y": None}], PAIR),
        PACKED,
        "'c': child 'y' of a packed struct has nulls.*2.2",
    ),
    "packed_item": (
        pa.array([{"v": [1, None]}], pa.struct([("v", pa.list_(pa.int8(), 2))])),
        PACKED,
        "'c': child 'v' of a packed struct has nulls.*2.2",
    ),
}


@pytest.mark.parametrize("name", NULLED)
def test_nulls_that_version_2_0_cannot_store_are_refused_and_leave_no_file(
    tmp_path: Path, name: str
) -> None:
    array, metadata, message = NULLED[name]
    schema = pa.schema([pa.field("c", array.type, metadata=metadata)])
    path = tmp_path / "t.lance"
    with pytest.raises(InvalidInputError, match=message):
        lance_spark.write_dataset(
            pa.table([array], schema=schema), str(path), data_storage_version="2.0"
        )
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_structs_below_null_lists_may_be_null(tmp_path: Path) -> None:
    structs = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3])], ["x"], mask=pa.array([False, True, False])
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()), structs, mask=pa.array([False, True, False])
    )
    table = pa.table({"l": lists})
    write_file(tmp_path / "f.lance", table)
    check(tmp_path / "f.lance", table)


def test_structs_in_lists_whose_pages_pylance_copied(tmp_path: Path) -> None:
    """Its compaction gives the column of the structs as many rows as the file has."""
    inner = pa.struct([("a", pa.int16()), ("l", pa.list_(pa.struct([("b", pa.string())])))])
    lists: list[Any] = [[{"a": 1, "l": [{"b": "x"}]}, {"a": 2, "l": []}], [], [{"a": 3, "l": []}]]
    path = str(tmp_path / "t")
    for first in (0, 1):
        data = pa.table({"c": pa.array(lists[first:], pa.list_(inner))})
        lance_spark.write_dataset(
            data, path, mode="append" if first else "create", data_storage_version="2.0"
        )
    lance.dataset(path).optimize.compact_files(compaction_mode="force_binary_copy")
    expected = lists + lists[1:]
    dataset = lance_spark.open_dataset(path)
    assert lance.dataset(path).to_table()["c"].to_pylist() == expected
    assert dataset.to_table()["c"].to_pylist() == expected
    assert dataset.take([4, 0])["c"].to_pylist() == [expected[4], expected[0]]
    dataset.validate()
