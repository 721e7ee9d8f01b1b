"""Columns that the matrix of types does not have: dictionaries, compression, packed structs,
blobs, many pages.
"""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.v2_0.field import open_field, parse
from lance_spark.errors import CorruptFileError, UnsupportedTypeError
from lance_spark.storage.source import run_plans
from tests.encoding.v2_0.files import File, assert_rows, read_theirs, write

N = 3000


def words(count: int = N, distinct: int = 7) -> pa.Array:
    return pa.array([f"word {i * 31 % distinct}" if i % 5 else None for i in range(count)])


def sentences(count: int = N) -> pa.Array:
    text = [f"the quick brown fox {i} jumps over {i % 17} lazy dogs" for i in range(count)]
    return pa.array([None if i % 11 == 0 else t if i % 13 else "" for i, t in enumerate(text)])


def vectors(items: pa.Array, size: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(items, size)


def structs(count: int = N) -> pa.StructArray:
    children = [
        pa.array(np.arange(count), pa.int32()),
        pa.array(np.arange(count) / 3),
        vectors(pa.array(np.arange(4 * count) % 999, pa.int16()), 4),
        pa.array(np.arange(count) % 100, pa.uint8()),
        pa.array([b"%03d" % (i % 1000) for i in range(count)], pa.binary(3)),
    ]
    return pa.StructArray.from_arrays(children, ["a", "b", "v", "c", "f"])


COMPRESSION = "lance-encoding:compression"
PACKED = {"packed": "true"}
CASES: dict[str, tuple[pa.Array, dict[str, str]]] = {
    "dictionary": (words().dictionary_encode(), {}),
    "dictionary_int8": (words().cast(pa.dictionary(pa.int8(), pa.string())), {}),
    "dictionary_large": (words().cast(pa.dictionary(pa.uint16(), pa.large_string())), {}),
    "dictionary_int": (pa.array([1, 2**40, None] * 1000).dictionary_encode(), {}),
    "dictionary_none": (pa.nulls(50, pa.dictionary(pa.int32(), pa.string())), {}),
    "dictionary_list": (
        pa.ListArray.from_arrays(pa.array([0, 3, 3, 4, N]), words().dictionary_encode()),
        {},
    ),
    "low_cardinality": (words(distinct=60), {}),
    "low_cardinality_empty": (pa.array(["", "a", None] * 100), {}),
    "zstd": (sentences(), {COMPRESSION: "zstd"}),
    "zstd_level": (sentences(), {COMPRESSION: "zstd", f"{COMPRESSION}-level": "9"}),
    "lz4": (sentences(), {COMPRESSION: "lz4"}),
    "none": (sentences(), {COMPRESSION: "none"}),
    "zstd_binary": (sentences().cast(pa.large_binary()), {COMPRESSION: "zstd"}),
    "fsst": (sentences(), {COMPRESSION: "fsst"}),
    "fsst_binary": (sentences().cast(pa.binary()), {COMPRESSION: "fsst"}),
    "fsst_list": (
        pa.ListArray.from_arrays(pa.array(np.arange(0, N + 1, 3)), sentences()),
        {COMPRESSION: "fsst"},
    ),
    "fsst_nulls_at_the_ends": (
        pa.concat_arrays([pa.nulls(3, pa.string()), sentences(), pa.nulls(2, pa.string())]),
        {COMPRESSION: "fsst"},
    ),
    "packed": (structs(), PACKED),
    "packed_key": (structs(), {"lance-encoding:packed": "true"}),
    "packed_nested": (
        pa.StructArray.from_arrays([structs(), pa.array(np.arange(N))], ["s", "k"]),
        PACKED,
    ),
    "vectors_of_structs": (vectors(structs(), 3), {}),
    "vectors_with_null_items": (pa.array([[1, None, 3], None, [4, 5, 6]] * 500, pa.list_(pa.int32(), 3)), {}),
    "vectors_of_bools": (pa.array([[True, None, False], [True] * 3] * 500, pa.list_(pa.bool_(), 3)), {}),
    "wide_vectors": (vectors(pa.array(np.arange(1536 * 50) / 7, pa.float32()), 1536), {}),
    "no_items": (pa.array([[], None, []] * 100, pa.list_(pa.int32())), {}),
    "null_items": (pa.array([[None, None], [], None] * 100, pa.list_(pa.null())), {}),
    "empty_struct": (pa.array([{}] * 100, pa.struct([])), {}),
    "decimal256": (pa.array([1, -2, None] * 100, pa.decimal256(50, 2)), {}),
}  # fmt: skip
#: Columns that pylance writes at this version but does not read.
UNREADABLE = ("packed_nested", "vectors_of_structs")


@pytest.mark.parametrize("name", CASES)
def test_column(name: str, tmp_path: Path) -> None:
    array, metadata = CASES[name]
    field = pa.field("c", array.type, metadata=metadata)
    table = pa.table([array], schema=pa.schema([field]))
    path = write(tmp_path / "f.lance", table)
    theirs = array if name in UNREADABLE else read_theirs(path)["c"]
    assert len(theirs) == len(array)
    assert_rows(File(path, table.schema), "c", theirs, 3)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("dictionary", "dictionary {"),
        ("low_cardinality", "dictionary {"),
        ("zstd", 'scheme: "zstd"'),
        ("lz4", 'scheme: "lz4"'),
        ("fsst", "fsst {"),
        ("fsst_binary", "fsst {"),
        ("packed", "packed_struct {"),
        ("vectors_of_bools", "fixed_size_list {"),
        ("dictionary_none", "binary {"),
    ],
)
def test_the_cases_are_encoded_as_their_names_say(name: str, part: str, tmp_path: Path) -> None:
    array, metadata = CASES[name]
    schema = pa.schema([pa.field("c", array.type, metadata=metadata)])
    file = File(write(tmp_path / "f.lance", pa.table([array], schema=schema)), schema)
    (column,) = file.columns["c"]
    assert part in str(parse(column.pages[0].encoding))


def many_pages() -> pa.Table:
    count = 60_000
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 6, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    items = pa.array(np.arange(offsets[-1]))
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), items, mask=pa.array(rng.random(count) < 0.1)
    )
    strings = pa.array([None if i % 9 == 0 else f"{i} " * (i % 7) for i in range(count)])
    return pa.table(
        {
            "n": pa.array(np.arange(count), mask=rng.random(count) < 0.2),
            "s": strings,
            "low": words(count),
            "l": lists,
            "nested": pa.ListArray.from_arrays(pa.array(np.arange(0, count + 1, 3)), lists)[
                :20_000
            ].take(pa.array(np.arange(count) % 20_000)),
            "t": pa.StructArray.from_arrays([lists, strings], ["l", "s"]),
            "flag": pa.array(np.arange(count) % 3 == 0),
            "d": words(count).dictionary_encode(),
        }
    )


def test_rows_of_many_pages(tmp_path: Path) -> None:
    table = many_pages()
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=7_001))
    path = write(tmp_path / "f.lance", batches, data_cache_bytes=1 << 16)
    file = File(path, table.schema)
    assert all(len(columns[-1].pages) > 1 for columns in file.columns.values())
    theirs = read_theirs(path)
    for name in table.column_names:
        assert_rows(file, name, theirs[name], 6)


def test_scattered_rows_do_not_fetch_what_lies_between(tmp_path: Path) -> None:
    count = 1_000_000
    table = pa.table({"n": np.arange(count), "s": pa.array(np.arange(count)).cast(pa.string())})
    file = File(write(tmp_path / "f.lance", table), table.schema)
    rows = np.array([5, 400_000, 400_001, 999_999])
    for name in table.column_names:
        read = [0, 0]
        real = file.source.read

        def spy(ranges, read=read, real=real):
            read[0] += 1
            read[1] += sum(r.length for r in ranges)
            return real(ranges)

        file.source.read = spy  # type: ignore[method-assign]
        assert file.read(name, rows).to_pylist() == table[name].take(rows).to_pylist()
        assert read[1] < 200
        assert read[0] <= 2
        file.source.read = real  # type: ignore[method-assign]


class _Inches(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.float32(), "test.inches")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def test_extension_types_at_any_depth(tmp_path: Path) -> None:
    flat = pa.array([1.5, None, 3.0] * 100, pa.float32())
    plain = pa.StructArray.from_arrays(
        [flat, pa.array([[1.5, None], None, []] * 100, pa.list_(pa.float32()))], ["x", "l"]
    )
    vec = vectors(pa.array(np.arange(600), pa.float32()), 2)
    path = write(tmp_path / "f.lance", pa.table({"c": plain, "v": vec}))
    dtype = pa.struct([("x", _Inches()), ("l", pa.list_(_Inches()))])
    schema = pa.schema([("c", dtype), ("v", pa.list_(_Inches(), 2))])
    file = File(path, schema)
    values = file.read("c", range(300))
    assert values.type == dtype
    assert values.field(0).storage.equals(flat)
    assert values.field(1).values.type == _Inches()
    assert values.to_pylist() == plain.to_pylist()
    assert file.read("v", np.array([3, 7])).to_pylist() == vec.take(pa.array([3, 7])).to_pylist()


def test_blobs(tmp_path: Path) -> None:
    values = [b"abc", None, b"", b"x" * 5000, bytes(range(256))] * 20
    blob = {"lance-encoding:blob": "true"}
    schema = pa.schema([pa.field("c", pa.large_binary(), metadata=blob)])
    uri = str(tmp_path / "set")
    table = pa.table([pa.array(values, pa.large_binary())], schema)
    dataset = lance.write_dataset(table, uri, data_storage_version="2.0")
    (data,) = (tmp_path / "set" / "data").iterdir()
    theirs = dataset.to_table()["c"].combine_chunks()
    children = [theirs.type.field(i) for i in range(2)]
    described = pa.schema([pa.field("c", pa.struct(children), metadata=blob)])
    assert_rows(File(str(data), described), "c", theirs, 8)


def test_a_struct_without_some_of_its_children(tmp_path: Path) -> None:
    table = pa.table({"c": pa.array([{"a": i, "b": str(i), "d": [i]} for i in range(100)])})
    path = write(tmp_path / "f.lance", table)
    whole = File(path, table.schema)
    header, _, _, lists, items = whole.columns["c"]
    field = pa.field("c", pa.struct([("d", pa.list_(pa.int64()))]))
    reader = open_field(field, [header, lists, items], path)
    (values,) = run_plans(whole.source, [reader.read(range(10, 20))])
    assert values.to_pylist() == [{"d": [i]} for i in range(10, 20)]


def test_columns_of_another_field_are_refused(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, 2]), "s": pa.array([{"x": 1}, {"x": 2}])})
    file = File(write(tmp_path / "f.lance", table), table.schema)
    with pytest.raises(CorruptFileError, match="2 columns where its type needs 1"):
        open_field(pa.field("a", pa.int64()), file.columns["s"], "f")
    with pytest.raises(CorruptFileError, match="'nullable' where 'struct'"):
        open_field(table.schema.field("s"), file.columns["a"] * 2, "f")
    reader = open_field(pa.field("a", pa.string()), file.columns["a"], "f")
    with pytest.raises(CorruptFileError, match="column 'a', page 0"):
        run_plans(file.source, [reader.read(range(2))])
    with pytest.raises(UnsupportedTypeError, match="maps"):
        open_field(pa.field("m", pa.map_(pa.int8(), pa.int8())), file.columns["a"] * 4, "f")
