"""Tables of file version 2.3, which pylance calls "next": read in every way, and written. What is
written is also in the tests of all versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

import lance_spark
from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.reader import FileReader
from lance_spark.storage.local import LocalSource
from tests.encoding.v2_3.pages import (
    FULL_ZIP,
    MINI_BLOCK,
    PLAIN,
    SPARSE,
    WrittenPage,
    choices,
    lists_of,
    nulls_at,
    pages_of,
    text,
    wide,
)
from tests.file.sources import MemorySource
from tests.interop.conftest import Pylance
from tests.proto.containers import strangers
from tests.support.interop.tables import (
    NESTED,
    NULLS,
    PATTERNS,
    SCALARS,
    TABLES,
    VECTORS,
    assert_same,
    build,
    random_table,
)

GROUP = 25
ROWS = 2_100
FORCED = {"plain": PLAIN, "sparse": SPARSE, "full_zip": FULL_ZIP, "mini_block": MINI_BLOCK}
MORE: dict[str, pa.DataType] = {
    "decimal256": pa.decimal256(60, 3),
    "map": pa.map_(pa.string(), pa.int32()),
    "map_of_lists": pa.map_(pa.int32(), pa.list_(pa.string())),
    "vectors_of_structs": pa.list_(pa.struct([("x", pa.int16()), ("y", pa.string())]), 3),
    "lists_of_maps": pa.list_(pa.map_(pa.string(), pa.float64())),
}
TYPES = SCALARS | VECTORS | NESTED | MORE
KEY = "lance-encoding:"


def with_metadata(table: pa.Table, metadata: dict[str, str]) -> pa.Table:
    fields = [field.with_metadata(metadata or None) for field in table.schema]
    return pa.table(table.columns, schema=pa.schema(fields))


def typed(pattern: str, nulls: str, rows: int) -> pa.Table:
    """Return a table with a column of every type."""
    rng = np.random.default_rng(21)
    values = PATTERNS[pattern](rows, rng).astype(np.int64)
    columns = {
        name: build(dtype, values, NULLS[nulls], rng, long=pattern == "long")
        for name, dtype in TYPES.items()
        if not pa.types.is_decimal256(dtype)
    }
    integers = pa.array(values % 10**9).cast(pa.decimal256(60, 0))
    wider = pa.Array.from_buffers(pa.decimal256(60, 3), rows, integers.buffers())
    columns["decimal256"] = nulls_at(wider, NULLS[nulls]) if rows else wider
    return pa.table(columns)


def check(path: Path, expected: pa.Table, note: str = "") -> None:
    """Read a table of pylance completely, in ranges, and by some rows."""
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.data_storage_version == "2.3"
    assert_same(dataset.to_table(), expected, note)
    if not expected.num_rows:
        return
    rng = np.random.default_rng(expected.num_rows)
    for rows in (
        rng.integers(0, expected.num_rows, 25),
        np.array([expected.num_rows - 1, 0]),
        np.arange(expected.num_rows // 3, expected.num_rows // 2),
    ):
        taken_rows = lance_spark.open_dataset(str(path)).take(rows)
        assert_same(taken_rows, expected.take(pa.array(rows)), f"{note}, take")
    size = int(rng.integers(1 + expected.num_rows // 20, 700 + expected.num_rows // 20))
    batches = list(dataset.to_batches(batch_size=size))
    for batch in batches:
        batch.validate(full=True)
    assert_same(pa.Table.from_batches(batches, dataset.schema), expected, f"{note}, batches")


def written(path: Path) -> list[WrittenPage]:
    """Return all pages of a table. Their messages must have no unknown fields."""
    files = (path / "data").glob("*.lance")
    pages = [page for file in files for page in pages_of(file.read_bytes())]
    assert all(strangers(page.layout) == [] for page in pages)
    return pages


@pytest.mark.sample(8)
@pytest.mark.parametrize("nulls", NULLS)
@pytest.mark.parametrize(
    ("pattern", "forced"),
    [
        *(("random", forced) for forced in FORCED),
        ("low", "plain"),
        ("low", "sparse"),
        ("runs", "plain"),
        ("constant", "sparse"),
    ],
)
def test_types(pylance: Pylance, tmp_path: Path, pattern: str, nulls: str, forced: str) -> None:
    table = typed(pattern, nulls, ROWS)
    path = tmp_path / "t.lance"
    pylance.write(with_metadata(table, FORCED[forced]), path, "2.3")
    check(path, table)
    chosen = choices(written(path))
    if forced == "sparse" and nulls == "some":
        assert chosen >= {"structure.sparse", "values.chunked", "layer.list"}
    if forced in ("sparse", "full_zip") and pattern == "random" and nulls != "all":
        assert "values.zipped" in chosen
    if forced == "full_zip" and pattern == "random" and nulls != "all":
        assert chosen >= {"structure.dense", "values.zipped"}
    if nulls == "all":
        assert "values.no_values" in chosen


@pytest.mark.sample(5)
@pytest.mark.parametrize("rows", [0, 1, 1_024, 1_025])
@pytest.mark.parametrize("forced", ["plain", "sparse"])
def test_sizes(pylance: Pylance, tmp_path: Path, rows: int, forced: str) -> None:
    table = typed("long", "some", rows)
    pylance.write(with_metadata(table, FORCED[forced]), tmp_path / "t.lance", "2.3")
    check(tmp_path / "t.lance", table)


def sparse_columns(rate: float) -> dict[str, pa.Array]:
    rng = np.random.default_rng(int(rate * 1000))
    count = 1_500
    lengths = np.where(rng.random(count) < 1 - rate, rng.integers(1, 5, count), 0)
    items = pa.array(rng.integers(0, 1 << 40, int(lengths.sum())))
    inner = lists_of(pa.array(range(int(lengths.sum()))), lengths, rate / 2)
    structs = nulls_at(
        pa.StructArray.from_arrays(
            [nulls_at(pa.array(range(count * 2)), rate), nulls_at(wide(count * 2), rate, seed=1)],
            ["a", "b"],
        ),
        rate / 2,
        seed=3,
    )
    return {
        "numbers": nulls_at(pa.array(rng.integers(0, 1 << 40, count)), rate),
        "flags": nulls_at(pa.array(rng.random(count) < 0.5), rate),
        "strings": nulls_at(text(rng.integers(0, 20, count)), rate),
        "wide": nulls_at(wide(count), rate),
        "large": nulls_at(wide(count).cast(pa.large_binary()), rate),
        "vectors": nulls_at(
            pa.FixedSizeListArray.from_arrays(pa.array(rng.random(count * 99).astype("f4")), 99),
            rate,
        ),
        "vectors_with_nulls": nulls_at(
            pa.FixedSizeListArray.from_arrays(nulls_at(pa.array(rng.random(count * 7)), rate), 7),
            rate,
        ),
        "lists": nulls_at(lists_of(nulls_at(items, rate), lengths), rate / 2),
        "lists_of_lists": lists_of(inner, np.ones(count, np.int64), rate / 2),
        "structs": structs.slice(0, count),
        "vectors_of_structs": nulls_at(pa.FixedSizeListArray.from_arrays(structs, 2), rate),
        "lists_of_vectors": lists_of(
            pa.FixedSizeListArray.from_arrays(structs, 2), np.arange(count) % 2
        ),
        "vectors_of_lists": nulls_at(
            pa.FixedSizeListArray.from_arrays(
                pa.StructArray.from_arrays(
                    [lists_of(pa.array(range(count * 3)), np.arange(count * 2) % 3)], ["l"]
                ),
                2,
            ),
            rate,
        ),
    }


@pytest.mark.parametrize("rate", [0.001, 0.5, 0.99, 1.0])
def test_sparse(pylance: Pylance, tmp_path: Path, rate: float) -> None:
    table = pa.table(sparse_columns(rate))
    pylance.write(with_metadata(table, SPARSE), tmp_path / "t.lance", "2.3")
    check(tmp_path / "t.lance", table)
    chosen = choices(written(tmp_path / "t.lance"))
    assert chosen >= {"structure.sparse", "layer.validity", "layer.list", "layer.fixed_size_list"}
    if rate < 1:
        assert chosen >= {"values.chunked", "values.zipped"}


@pytest.mark.parametrize(
    "counts",
    [
        np.full(900, 3),
        np.arange(900) % 2 * 4,
        np.arange(120),
        np.repeat(np.arange(1, 40), 7),
        np.repeat(np.arange(1, 40), np.arange(1, 40)),
        np.repeat([5, 9, 2, 70], [10, 20, 30, 40]),
        np.repeat([3, 8, 1, 60, 2, 9], 17),
        np.repeat(np.arange(1, 60), np.random.default_rng(1).integers(20, 60, 59)),
        np.random.default_rng(2).integers(0, 900, 80),
        np.arange(900) % 7 // 2,
        np.tile([3, 1, 4, 1, 5, 9, 2, 6], 200),
        np.sort(np.random.default_rng(3).integers(0, 300, 200)),
        np.repeat(np.random.default_rng(4).integers(1, 90, 30), 50),
        np.array([5]),
        np.array([0, 7, 7]),
    ],
)
def test_counts(pylance: Pylance, tmp_path: Path, counts: np.ndarray) -> None:
    """The format has several encodings of the lengths of lists."""
    items = pa.array(np.random.default_rng(5).integers(0, 1 << 40, int(counts.sum())))
    table = pa.table({"c": lists_of(items, counts)})
    pylance.write(with_metadata(table, SPARSE), tmp_path / "t.lance", "2.3")
    check(tmp_path / "t.lance", table)


LENGTHS = {
    "equal": np.full(3000, 7),
    "alternating": np.arange(3000) % 2 * 9,
    "rare": (np.arange(5000) % 500 == 0) * 80,
    "nearly_all_empty": np.append(np.zeros(3000, np.int64), 9),
    "halves": np.repeat([0, 1], 2000),
    "random": np.random.default_rng(6).integers(5, 30, 3000),
    "growing": np.arange(100),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("compression", [None, "none", "lz4", "zstd", "fsst"])
def test_string_offsets(
    pylance: Pylance, tmp_path: Path, lengths: str, compression: str | None
) -> None:
    values = text(LENGTHS[lengths])
    count = len(values)
    table = pa.table(
        {
            "c": values,
            "nulls": nulls_at(values, 0.3),
            "large": values.cast(pa.large_binary()),
            "lists": lists_of(values, np.arange(count) * 2 % 3 % 2),
        }
    )
    metadata = {KEY + "compression": compression} if compression else PLAIN
    pylance.write(with_metadata(table, metadata), tmp_path / "t.lance", "2.3")
    check(tmp_path / "t.lance", table)


def words(count: int) -> pa.Array:
    rng = np.random.default_rng(7)
    known = [f"{a}{b}" for a in ("alpha", "beta", "gamma", "delta") for b in range(40)]
    return pa.array([" ".join(rng.choice(known, 6)) for _ in range(count)])


def keyed() -> Iterator[tuple[str, pa.Array, dict[str, str]]]:
    rng = np.random.default_rng(8)
    count = 1_500
    numbers = pa.array(rng.integers(0, 1 << 40, count))
    low = pa.array(rng.integers(0, 50, count) * 1_000_003)
    runs = pa.array(np.repeat(rng.integers(0, 1 << 40, count // 50), 50))
    floats = pa.array(rng.random(count))
    fixed = pa.StructArray.from_arrays(
        [numbers, pa.array(rng.integers(0, 99, count), pa.int16())], ["a", "b"]
    )
    mixed = pa.StructArray.from_arrays([numbers, words(count)], ["a", "b"])
    # Wide values that occur several times: a dictionary saves bytes, but must not be read
    # completely.
    pool = pa.array([rng.bytes(5000) for _ in range(40)])
    repeated = pool.take(pa.array(rng.integers(0, 40, count)))
    dictionary = pa.DictionaryArray.from_arrays(pa.array(rng.integers(0, 40, count)), words(40))
    for suffix, forced in (("", PLAIN), ("_sparse", SPARSE)):
        for scheme in ("lz4", "zstd"):
            key = {KEY + "compression": scheme, **forced}
            yield f"numbers_{scheme}{suffix}", nulls_at(numbers, 0.3), key
            yield f"words_{scheme}{suffix}", nulls_at(words(count), 0.3), key
        yield f"fsst{suffix}", nulls_at(words(count), 0.3), {KEY + "compression": "fsst", **forced}
        yield f"bss{suffix}", nulls_at(floats, 0.3), {KEY + "bss": "on", KEY + "compression": "lz4"}
        yield f"runs{suffix}", nulls_at(runs, 0.3), {KEY + "rle-threshold": "1.0", **forced}
        yield f"dictionary{suffix}", nulls_at(low, 0.3), {KEY + "dict-divisor": "2", **forced}
        yield f"dictionary_type{suffix}", nulls_at(dictionary, 0.3), forced
        yield f"packed{suffix}", fixed, {KEY + "packed": "true", **forced}
        yield f"packed_nulls{suffix}", nulls_at(fixed, 0.3), {KEY + "packed": "true", **forced}
        yield f"packed_words{suffix}", nulls_at(mixed, 0.3), {KEY + "packed": "true", **forced}
        yield f"again{suffix}", nulls_at(repeated, 0.3), forced
    yield "full_zip_zstd", nulls_at(words(count), 0.3), {KEY + "compression": "zstd", **FULL_ZIP}
    yield "full_zip_packed", fixed, {KEY + "packed": "true", **FULL_ZIP}


def test_keys(tmp_path: Path) -> None:
    columns = list(keyed())
    fields = [pa.field(name, array.type, metadata=key) for name, array, key in columns]
    table = pa.table([array for _, array, _ in columns], schema=pa.schema(fields))
    path = tmp_path / "t.lance"
    lance.write_dataset(table, str(path), data_storage_version="next")
    check(path, pa.table(table.columns, names=table.column_names))
    assert choices(written(path)) >= {
        "structure.dense",
        "structure.sparse",
        "values.chunked",
        "values.zipped",
        "values.indexed",
        "compression.general",
        "compression.rle",
        "compression.fsst",
        "compression.byte_stream_split",
        "compression.packed_struct",
        "compression.variable_packed_struct",
        "compression.delta",
    }


@pytest.mark.parametrize("first", range(0, TABLES // 3, GROUP))
def test_random_tables(pylance: Pylance, tmp_path: Path, first: int) -> None:
    for seed in range(first, min(first + GROUP, TABLES // 3)):
        table = random_table(seed, maps=True)
        path = tmp_path / f"{seed}.lance"
        pylance.write(with_metadata(table, [PLAIN, SPARSE, FULL_ZIP][seed % 3]), path, "2.3")
        check(path, table, f"seed {seed}")


def test_many_pages(tmp_path: Path) -> None:
    """Pages of one column differ in structure and values."""
    rng = np.random.default_rng(9)
    count = 3_000
    numbers = rng.integers(0, 1 << 40, count)
    absent = np.zeros(count, bool)
    absent[1000:2000] = rng.random(1000) < 0.5
    absent[2000:2500] = True
    lengths = np.where(np.arange(count) < 2600, np.arange(count) % 4, 0)
    items = nulls_at(pa.array(rng.integers(0, 1 << 40, int(lengths.sum()))), 0.3)
    structs = pa.StructArray.from_arrays(
        [pa.array(np.repeat(numbers, 2)), wide(2 * count)], ["a", "b"]
    )
    table = pa.table(
        {
            "numbers": pa.array(numbers, mask=absent),
            "wide": pa.array(wide(count).to_pylist(), pa.binary(), mask=absent),
            "lists": lists_of(items, lengths),
            "vectors": nulls_at(pa.FixedSizeListArray.from_arrays(structs, 2), 0.3),
        }
    )
    stored = with_metadata(table, SPARSE)
    path = tmp_path / "f.lance"
    with LanceFileWriter(
        str(path), stored.schema, version="2.3", data_cache_bytes=1, max_page_bytes=4_000
    ) as writer:
        for start in range(0, count, 500):
            # pylance fails with slices of vectors of structs.
            piece = stored.take(pa.array(range(start, start + 500)))
            writer.write_batch(piece.combine_chunks().to_batches()[0])
    pages = pages_of(path.read_bytes())
    assert len(pages) > 20
    assert {page.structure for page in pages} == {"dense", "sparse"}
    assert {page.values for page in pages} >= {"chunked", "zipped", "no_values"}
    for rows in (range(count), range(990, 2_010), np.unique(rng.integers(0, count, 60))):
        reader = FileReader.open(LocalSource(str(path)))
        arrays = reader.read(reader.schema.fields, rows)
        expected = table.take(pa.array(list(rows)))
        assert_same(pa.table(arrays, names=table.column_names), expected)


def test_deletions_and_later_files(pylance: Pylance, tmp_path: Path) -> None:
    table = with_metadata(pa.table(sparse_columns(0.3)), SPARSE)
    table = table.append_column("id", pa.array(range(len(table))))
    path = tmp_path / "t.lance"
    # pylance fails with slices of vectors of structs.
    first, second = (
        table.take(pa.array(range(*ends))).combine_chunks() for ends in ((0, 900), (900, 1_500))
    )
    pylance.write(first, path, "2.3")
    lance.write_dataset(second, str(path), mode="append")
    dataset = lance.dataset(str(path))
    dataset.delete("id % 7 = 3 or (id > 500 and id < 700)")
    dataset.add_columns({"twice": "id * 2"})
    expected = lance.dataset(str(path)).to_table()
    assert 900 < expected.num_rows < 1_300
    check(path, expected)


def test_a_table_is_written_and_changed_by_both(pylance: Pylance, tmp_path: Path) -> None:
    """Files of version 2.3 are written only if the table has them, or an option says so."""
    table = pa.table({"a": [1, 2, None], "s": ["x", None, "z"]})
    path = tmp_path / "t.lance"
    lance_spark.write_dataset(table, str(path))
    assert lance.dataset(str(path)).data_storage_version == "2.2"
    lance_spark.write_dataset(table, str(path), mode="overwrite", data_storage_version="next")
    assert lance.dataset(str(path)).data_storage_version == "2.3"
    lance.write_dataset(table, str(path), mode="append")
    dataset = lance_spark.write_dataset(table, str(path), mode="append")
    dataset = dataset.update({"s": "new"}, "a = 1")
    dataset = dataset.update({"a": 7}, "s = 'z'", mode="columns")
    dataset, _ = dataset.compact_files()
    lance.dataset(str(path)).create_scalar_index("a", "BTREE")
    check(path, pylance.read(path))
    assert pylance.read(path)["s"].to_pylist().count("new") == 3
    lance.dataset(str(path)).optimize.compact_files()
    check(path, pylance.read(path))
    assert lance.dataset(str(path)).to_table(filter="a = 7").num_rows == 3


def test_pages_without_values(tmp_path: Path) -> None:
    """They have the structure alone."""
    lists = pa.list_(pa.struct([("n", pa.null()), ("l", pa.large_list(pa.string()))]))
    inner = [[{"n": None, "l": []}, None, {"n": None, "l": None}], [], None]
    cases = [
        pa.array(inner * 3, lists),
        pa.array([None, {"n": None}], pa.struct([("n", pa.null())])),
        pa.array([[], None, []], pa.list_(pa.struct([("x", pa.int8()), ("y", pa.string())]))),
        pa.array([[None, None], None], pa.list_(pa.struct([("x", pa.int8())]), 2)),
        pa.array([[]], pa.map_(pa.string(), pa.int32())),
        pa.array([[]] * 5, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
        pa.array([{}] * 3, pa.struct([])),
    ]
    for number, array in enumerate(cases):
        path = tmp_path / str(number)
        lance_spark.write_dataset(pa.table({"c": array}), str(path), data_storage_version="2.3")
        assert lance.dataset(str(path)).to_table()["c"].combine_chunks().equals(array), array.type
        check(path, pa.table({"c": array}))


READS = {
    # Rows of a dense page are read by its tables, then the chunk.
    "dense": (lambda: pa.array(np.random.default_rng(1).integers(0, 1 << 62, 60_000)), PLAIN, 2),
    "dense_offsets": (lambda: text(np.full(60_000, 16)), PLAIN, 2),
    "sparse": (lambda: nulls_at(pa.array(range(60_000)), 0.3), SPARSE, 3),
    "sparse_zipped": (lambda: nulls_at(wide(3_000), 0.3), SPARSE, 3),
    "sparse_vectors": (
        lambda: nulls_at(
            pa.FixedSizeListArray.from_arrays(
                pa.array(np.random.default_rng(2).random(900_000)), 300
            ),
            0.3,
        ),
        SPARSE,
        2,
    ),
    "sparse_lists": (
        lambda: lists_of(nulls_at(pa.array(range(60_000)), 0.3), np.arange(20_000) % 5),
        SPARSE,
        3,
    ),
}


@pytest.mark.parametrize("name", READS)
def test_a_few_rows_read_little(tmp_path: Path, name: str) -> None:
    """The structure of a sparse page is read once. Of the values, only chunks with the rows are
    read.
    """
    make, metadata, rounds = READS[name]
    array = make()
    schema = pa.schema([pa.field("c", array.type, metadata=metadata or None)])
    path = tmp_path / "f.lance"
    with LanceFileWriter(str(path), schema, version="2.3") as writer:
        writer.write_batch(pa.record_batch([array], schema=schema))
    (page,) = pages_of(path.read_bytes())
    assert page.structure == name.partition("_")[0]
    source = MemorySource(path.read_bytes())
    reader = FileReader.open(source)
    fields = reader.schema.fields
    data = max(len(buffer) for buffer in page.buffers)
    other_bytes = sum(len(buffer) for buffer in page.buffers) - data
    # The metadata of the column is at the end of the file, which is in memory.
    source.calls.clear()
    rows = np.array([len(array) // 2 + 1])
    assert reader.read(fields, rows)[0].equals(array.take(pa.array(rows)))
    assert len(source.calls) <= rounds
    assert bytes_of(source) < other_bytes + data / 4
    source.calls.clear()
    rows = np.array([5, len(array) - 3])
    assert reader.read(fields, rows)[0].equals(array.take(pa.array(rows)))
    # Full-zip values of varying width: first their positions are read, then the values.
    assert len(source.calls) <= 2
    assert bytes_of(source) < data / 4


def bytes_of(source: MemorySource) -> int:
    return sum(length for call in source.calls for _, length in call)


@pytest.mark.parametrize("rows", [3, 300])
def test_values_without_bytes_are_refused(tmp_path: Path, rows: int) -> None:
    """pylance writes them as a constant without bytes, and cannot read it."""
    column = pa.Array.from_buffers(pa.binary(0), rows, [None, pa.py_buffer(b"")])
    data = pa.table({"c": column})
    lance.write_dataset(data, str(tmp_path / "theirs"), data_storage_version="2.3")
    with pytest.raises((OSError, ValueError), match="scalar"):
        lance.dataset(str(tmp_path / "theirs")).to_table()
    assert lance_spark.open_dataset(str(tmp_path / "theirs")).to_table() == data
    with pytest.raises(UnsupportedTypeError, match=r"'c': values of type fixed_size_binary\[0\]"):
        lance_spark.write_dataset(data, str(tmp_path / "ours"), data_storage_version="2.3")
    lance_spark.write_dataset(data, str(tmp_path / "ours"), data_storage_version="2.2")
    assert lance.dataset(str(tmp_path / "ours")).to_table() == data


@pytest.mark.parametrize("size", [1, 2])
def test_vectors_of_structs_of_which_a_child_is_all_null(tmp_path: Path, size: int) -> None:
    """pylance takes the layer of fixed-size lists by its kind, also if they have one item."""
    rows = 20
    children = [pa.array(range(rows * size)), pa.nulls(rows * size, pa.int16())]
    structs = pa.StructArray.from_arrays(children, ["a", "b"])
    for number, mask in enumerate((None, pa.array(np.arange(rows) % 3 == 0))):
        column = pa.FixedSizeListArray.from_arrays(structs, size, mask=mask)
        table = pa.table({"c": column})
        path = str(tmp_path / str(number))
        lance_spark.write_dataset(table, path, data_storage_version="2.3")
        for dataset in (lance.dataset(path), lance_spark.open_dataset(path)):
            assert dataset.to_table().to_pylist() == table.to_pylist()
            assert dataset.take([1, 7]).to_pylist() == table.take([1, 7]).to_pylist()
