"""Files of version 0.1 as this package writes them: what pylance reads, and the statistics that
pylance would write.

Version 0.1 loses most nulls. What a file of it holds, as pylance reads it, must survive being
written by us: this gives rows of any type that the version can store.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError, SchemaMismatchError, UnsupportedTypeError
from tests.interop.files.legacy_tables import GROUP, as_stored, data_file, extremes
from tests.interop.files.test_read_0_1 import TYPES, array_of, nullable_items
from tests.support.interop.tables import TABLES, assert_same, random_table


def has_fixed_bools(dtype: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(dtype):
        return pa.types.is_boolean(dtype.value_type) or has_fixed_bools(dtype.value_type)
    return any(has_fixed_bools(dtype.field(index).type) for index in range(dtype.num_fields))


def check(path: Path, expected: pa.Table, *, seed: int = 1) -> None:
    """Read a table of this package with pylance: all rows, a range, scattered rows, one column."""
    dataset = lance.dataset(str(path))
    dataset.validate()
    assert dataset.data_storage_version == "0.1"
    assert dataset.count_rows() == expected.num_rows
    assert_same(dataset.to_table(), expected, "all")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.integers(0, expected.num_rows, 20))
    if not any(has_fixed_bools(field.type) for field in expected.schema):
        # pylance panics on takes of these types, in its own files too.
        assert_same(dataset.take(rows.tolist()), expected.take(pa.array(rows)), "take")
    first, last = int(rows[3]), int(rows[15]) + 1
    part = dataset.to_table(offset=first, limit=last - first)
    assert_same(part, expected.slice(first, last - first), "range")
    names = expected.column_names[-1:]
    assert_same(dataset.to_table(names), expected.select(names), f"{names}")
    assert_same(lance_spark.open_dataset(str(path)).to_table(), expected, "ours")


def check_statistics(ours: Path, theirs: Path) -> None:
    """Compare the statistics of two tables of one file each, and the schemas of the statistics."""
    ours_reader, theirs_reader = data_file(ours), data_file(theirs)
    assert [f.logical_type for f in ours_reader.schema.walk()] == [
        f.logical_type for f in theirs_reader.schema.walk()
    ]
    for node in theirs_reader.schema.walk():
        theirs_statistics, ours_statistics = (
            theirs_reader.statistics(node.id),
            ours_reader.statistics(node.id),
        )
        if ours_statistics is None and theirs_statistics is not None:
            # pylance leaves NaN out of its bounds, and loses rows by these bounds.
            top = next(f for f in theirs_reader.schema.fields if node in f.walk())
            (array,) = theirs_reader.read([top], range(theirs_reader.num_rows))
            assert "nan" in repr(array.to_pylist()), node.name
        if theirs_statistics is None or ours_statistics is None:
            assert ours_statistics is None, node.name
            continue
        assert (theirs_statistics.bounds == ours_statistics.bounds).all(), node.name
        for name in ("null_count", "minimum", "maximum"):
            expected, actual = (
                getattr(theirs_statistics, name).to_pylist(),
                getattr(ours_statistics, name).to_pylist(),
            )
            if name == "maximum":
                # Pages with nulls and one value: pylance takes the nulls for this value.
                pages = zip(
                    theirs_statistics.null_count.to_pylist(),
                    theirs_statistics.minimum.to_pylist(),
                    strict=True,
                )
                for page, (nulls, low) in enumerate(pages):
                    if nulls and low is not None and low == expected[page]:
                        assert actual[page] is None or actual[page] > expected[page], node.name
                        expected[page] = actual[page]
            # The bytes differ between -0.0 and 0.0, which compare as equal.
            assert expected == actual, (node.name, name)
            assert repr(expected) == repr(actual), (node.name, name)
    ours_reader.close()
    theirs_reader.close()


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", TYPES)
def test_every_type(tmp_path: Path, name: str) -> None:
    table = pa.table({"x": array_of(TYPES[name], 2_500, 0.3), "y": np.arange(2_500)})
    theirs = tmp_path / "theirs"
    expected = as_stored(table, theirs).to_table()
    ours = tmp_path / "ours"
    lance_spark.write_dataset(expected, str(ours), data_storage_version="0.1")
    check(ours, expected)
    theirs = tmp_path / "again"
    as_stored(expected, theirs)
    check_statistics(ours, theirs)


@pytest.mark.parametrize("first", range(0, TABLES // 3, GROUP))
def test_random_tables(tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, TABLES // 3)):
        table = random_table(seed)
        table = pa.Table.from_arrays(
            [column.cast(nullable_items(column.type)) for column in table.columns],
            schema=pa.schema([f.with_type(nullable_items(f.type)) for f in table.schema]),
        )
        if not table.num_rows:
            continue
        expected = as_stored(table, tmp_path / f"{seed}").to_table()
        ours, theirs = tmp_path / f"{seed}-ours", tmp_path / f"{seed}-theirs"
        batches = expected.to_batches(max_chunksize=1 + seed * 37 % 3_000)
        lance_spark.write_dataset(
            pa.Table.from_batches(batches, expected.schema),
            str(ours),
            data_storage_version="legacy",
        )
        check(ours, expected, seed=seed)
        as_stored(expected, theirs)
        check_statistics(ours, theirs)


STRUCT = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())])
CHANGED = {
    "number": (pa.array([1, 2, None]), "'x', row 2 .*null would be read as 0"),
    "bool": (pa.array([True, None]), "'x', row 1 .*as false"),
    "date": (pa.array([None, 1], pa.date32()), "'x', row 0 .*as 0"),
    "fixed": (pa.array([b"abc", None], pa.binary(3)), "'x', row 1 .*as zeros"),
    "vector": (pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2)), "'x', row 1 .*as zeros"),
    "item": (pa.array([[1.0, 2.0], [3.0, None]], pa.list_(pa.float32(), 2)), "'x.item', row 1 "),
    "list": (pa.array([[], None], pa.list_(pa.int8())), "'x', row 1 .*as an empty list"),
    "list item": (pa.array([[], [1], [2, None]], pa.list_(pa.int8())), "'x.item', row 2 "),
    "struct": (pa.array([{"a": 1, "b": "s"}, None], STRUCT), "'x', row 1 .*as a struct of zeros"),
    "child": (pa.array([{"a": 1}, {"a": None}], STRUCT), "'x.a', row 1 .*as 0"),
    "empty": (pa.array(["a", None, ""]), "'x', row 2 .*an empty string would be read as null"),
    "empty item": (pa.array([["a"], ["b", ""]]), "'x.item', row 1 .*an empty string"),
    "index": (
        pa.DictionaryArray.from_arrays(pa.array([0, None], pa.int8()), pa.array(["a"])),
        "'x', row 1 .*as the first value of the dictionary",
    ),
    "entry": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["a", ""])),
        "'x', row 1 .*an empty value of its dictionary",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_values_that_would_change_are_refused(tmp_path: Path, name: str) -> None:
    array, message = CHANGED[name]
    table = pa.table({"id": range(len(array)), "x": array})
    # pylance writes these types, and reads other values.
    assert as_stored(table, tmp_path / "theirs").to_table()["x"].to_pylist() != array.to_pylist()
    with pytest.raises(InvalidInputError, match=f"{message}.*data storage version 2.2"):
        lance_spark.write_dataset(table, str(tmp_path / "t"), data_storage_version="0.1")
    assert not list((tmp_path / "t").rglob("*.*"))
    # The same rows after a good row, appended to an existing table, are refused too.
    good = table.slice(0, 0 if array[0].as_py() is None else 1)
    with pytest.raises(InvalidInputError, match="would be read as"):
        lance_spark.write_dataset(
            pa.concat_tables([good, table]), str(tmp_path / "theirs"), mode="append"
        )
    assert len(list((tmp_path / "theirs" / "data").iterdir())) == 1


REFUSED = {
    "map": pa.map_(pa.string(), pa.int32()),
    "struct without fields": pa.struct([]),
    "inside": pa.list_(pa.struct([("e", pa.struct([]))])),
    "fixed-size list of strings": pa.list_(pa.string(), 2),
    "fixed-size list of structs": pa.list_(pa.struct([("a", pa.int8())]), 2),
    "dictionary of floats": pa.dictionary(pa.int8(), pa.float32()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_pylance_does_not_store(tmp_path: Path, name: str) -> None:
    schema = pa.schema([pa.field("x", REFUSED[name]), pa.field("y", pa.int8())])
    with pytest.raises(UnsupportedTypeError, match=r"field 'x.*0\.1"):
        lance_spark.write_dataset(
            schema.empty_table(), str(tmp_path / "t"), data_storage_version="0.1"
        )
    blob = pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    with pytest.raises(UnsupportedTypeError, match="have no blobs"):
        lance_spark.write_dataset(
            pa.schema([blob]).empty_table(), str(tmp_path / "t"), data_storage_version="0.1"
        )


def test_rows_must_have_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "t"
    as_stored(pa.table({"a": [1], "s": [{"b": "x", "c": 2}]}), path)
    for part in (pa.table({"a": [2]}), pa.table({"a": [2], "s": [{"b": "y"}]})):
        # pylance refuses them, too.
        with pytest.raises(OSError, match="does not contain field"):
            lance.write_dataset(part, str(path), mode="append")
        with pytest.raises(SchemaMismatchError, match="must have all columns"):
            lance_spark.write_dataset(part, str(path), mode="append")


def test_items_of_lists_may_be_null(tmp_path: Path) -> None:
    # pylance fails on lists whose items must not be null, in its own files too.
    dtype = pa.struct([("l", pa.list_(pa.field("item", pa.int64(), nullable=False)))])
    table = pa.table({"x": pa.array([{"l": [1, 2]}, {"l": []}], dtype)})
    lance_spark.write_dataset(table, str(tmp_path / "t"), data_storage_version="0.1")
    assert lance.dataset(str(tmp_path / "t")).to_table()["x"].to_pylist() == table["x"].to_pylist()


def test_a_dictionary_is_that_of_the_table(tmp_path: Path) -> None:
    def colours(indices: list[int], values: list[str]) -> pa.Table:
        return pa.table({"d": pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)})

    path = tmp_path / "t"
    first, second = colours([0, 1, 2], ["a", "b", "c"]), colours([0, 1], ["c", "a"])
    lance_spark.write_dataset(first, str(path), data_storage_version="0.1")
    lance_spark.write_dataset(second, str(path), mode="append")
    lance.write_dataset(first, str(path), mode="append")
    wanted = ["a", "b", "c", "c", "a", "a", "b", "c"]
    assert lance.dataset(str(path)).to_table()["d"].to_pylist() == wanted
    assert lance_spark.open_dataset(str(path)).to_table()["d"].to_pylist() == wanted
    with pytest.raises(InvalidInputError, match="'z' is not in the dictionary of 3 values"):
        lance_spark.write_dataset(colours([0, 1], ["a", "z"]), str(path), mode="append")
    with pytest.raises(InvalidInputError, match="takes its dictionary from the first rows"):
        lance_spark.write_dataset(first.slice(0, 0), str(path), mode="overwrite")
    lance_spark.write_dataset(colours([1], ["x", "y"]), str(path), mode="overwrite")
    assert lance.dataset(str(path)).to_table()["d"].to_pylist() == ["y"]


def test_rows_of_many_bytes_make_short_batches(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    content = [rng.bytes(int(size)) for size in rng.integers(1, 200_000, 300)]
    table = pa.table({"i": range(300), "b": content, "l": [[i] * (i % 3) for i in range(300)]})
    lance_spark.write_dataset(table, str(tmp_path / "t"), data_storage_version="0.1")
    reader = data_file(tmp_path / "t")
    assert 1 < reader.num_batches < 10
    reader.close()
    check(tmp_path / "t", lance.dataset(str(tmp_path / "t")).to_table())
    assert lance.dataset(str(tmp_path / "t")).to_table().to_pylist() == table.to_pylist()
    filtered = lance.dataset(str(tmp_path / "t")).to_table(filter="i > 290 or i = 7")
    assert filtered["i"].to_pylist() == [7, *range(291, 300)]


def test_bytes_under_nulls_are_not_written(tmp_path: Path) -> None:
    offsets = pa.py_buffer(np.array([0, 2, 5, 6], np.int32))
    buffers = [pa.py_buffer(b"\x05"), offsets, pa.py_buffer(b"aaXYZb")]
    hidden = pa.Array.from_buffers(pa.string(), 3, buffers)
    table = pa.table({"s": hidden, "b": hidden.cast(pa.large_binary())}).slice(1)
    lance_spark.write_dataset(table, str(tmp_path / "t"), data_storage_version="0.1")
    assert lance.dataset(str(tmp_path / "t")).to_table().to_pylist() == table.to_pylist()


@pytest.mark.parametrize("rows", [1, 1_024, 7_000])
def test_bounds_are_those_of_pylance(tmp_path: Path, rows: int) -> None:
    table = extremes(rows)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    lance_spark.write_dataset(table, str(ours), data_storage_version="0.1")
    as_stored(table, theirs)
    check_statistics(ours, theirs)


def test_values_of_a_dictionary_that_are_no_text(tmp_path: Path) -> None:
    lance_spark.write_dataset(
        pa.table({"k": pa.array(["a"]).dictionary_encode()}),
        str(tmp_path),
        data_storage_version="0.1",
    )
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    bad = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), text)
    with pytest.raises(InvalidInputError, match=r"'k'.* b'\\xff\\xfe' is not in the dictionary"):
        lance_spark.write_dataset(pa.table({"k": bad}), str(tmp_path), mode="append")


MEMORY = """
import sys
import numpy as np
import pyarrow as pa
import lance_spark

def anonymous():
    for line in open("/proc/self/status"):
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024

highest = 0

def batches(rows, size):
    global highest
    for at in range(0, rows, size):
        ids = np.arange(at, at + size)
        words = pa.array(ids % 997).cast(pa.string())
        yield pa.record_batch({"id": ids, "word": words, "x": np.sqrt(ids)})
        highest = max(highest, anonymous())

schema = pa.schema({"id": pa.int64(), "word": pa.string(), "x": pa.float64()})
size = int(sys.argv[2])
def write(rows, mode):
    lance_spark.write_dataset(
        batches(rows, size), sys.argv[1], mode=mode, schema=schema, data_storage_version="0.1"
    )
write(size * 2, "create")
before, highest = anonymous(), 0
write(int(sys.argv[3]), "append")
print(highest - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells it there")
@pytest.mark.parametrize(("size", "rows"), [(100_000, 6_000_000), (700, 700_000)])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, size: int, rows: int) -> None:
    # Large batches of 150 MB, and batches with fewer rows than the batches of the file.
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "t"), str(size), str(rows)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 64 * 2**20
    assert lance.dataset(str(tmp_path / "t")).count_rows() == rows + 2 * size


def test_a_table_keeps_its_version_until_an_overwrite_names_another(tmp_path: Path) -> None:
    path = str(tmp_path)
    full = pa.table({"id": [1, 2], "s": ["a", None]})
    lance_spark.write_dataset(full, path, data_storage_version="0.1")
    # An overwrite by pylance keeps the file version of the table too.
    twin = str(tmp_path / "twin")
    lance.write_dataset(full, twin, data_storage_version="0.1")
    for mode, version in (("append", None), ("overwrite", None), ("overwrite", "2.2")):
        arguments = {} if version is None else {"data_storage_version": version}
        lance_spark.write_dataset(full, path, mode, **arguments)
        lance.write_dataset(full, twin, mode=mode, **arguments)
        theirs = lance.dataset(path)
        theirs.validate()
        assert theirs.data_storage_version == lance.dataset(twin).data_storage_version
        assert theirs.to_table() == lance.dataset(twin).to_table()
    nulls = pa.table({"id": [1, None], "s": ["a", ""]})
    lance_spark.write_dataset(nulls, path, mode="overwrite")
    assert lance.dataset(path).to_table() == nulls
    # The versions before do not change.
    old = lance_spark.open_dataset(path, 2)
    assert (old.data_storage_version, old.count_rows()) == ("0.1", 4)
    lance_spark.write_dataset(full, path, mode="overwrite", data_storage_version="legacy")
    assert lance.dataset(path).data_storage_version == "0.1"
    with pytest.raises(InvalidInputError, match="'id', row 1"):
        lance_spark.write_dataset(nulls, path, mode="overwrite", data_storage_version="0.1")
    assert lance.dataset(path).to_table() == full
