"""Checks of indexes: those of both clients are valid, and every planted mistake is found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.__main__ import main
from lance_spark.dataset import IndexCheck
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter
from lance_spark.indexes.bitmap import build as bitmap
from lance_spark.indexes.bloom_filter import files
from lance_spark.indexes.btree import build as btree
from lance_spark.indexes.builds import ColumnPart
from lance_spark.indexes.files import IndexFiles, read_columns
from lance_spark.indexes.row_sets import RowSet
from lance_spark.mutations.indexes import task
from lance_spark.table.indexes import sections as indexes
from tests.interop.indexes.tables import change, write

COLUMNS = {
    "BTREE": ["id", "f", "g", "s", "fix", "flag", "d", "nulls", "st.a"],
    "BITMAP": ["tiny", "f", "few", "raw", "day"],
    "ZONEMAP": ["x", "f", "s", "fix", "flag", "tz", "d", "nulls"],
    "BLOOMFILTER": ["id", "f", "s", "ts", "nulls"],
    "NGRAM": ["few", "big"],
}
TYPES = [*COLUMNS, "LABEL_LIST"]
FILES = {
    "BITMAP": "bitmap_page_lookup.lance",
    "LABEL_LIST": "bitmap_page_lookup.lance",
    "NGRAM": "ngram_postings.lance",
    "ZONEMAP": "zonemap.lance",
    "BLOOMFILTER": "bloomfilter.lance",
}
ROWS = 3_000
#: Options so that a small index has several pages or zones.
SMALL = {
    "BTREE": {"zone_size": 256},
    "ZONEMAP": {"rows_per_zone": 256},
    "BLOOMFILTER": {"number_of_items": 256},
}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "stable"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "t.lance"
    write(path, stable_row_ids=request.param, num_rows=12_000)
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_indexes_of_both_clients_are_valid(tmp_path: Path, source: Path, who: str) -> None:
    path = tmp_path / "t.lance"
    lance_spark.open_dataset(str(source)).deep_clone(str(path))
    names = {}
    for index_type, columns in COLUMNS.items():
        for column in columns:
            name = f"{index_type}_{column}".replace(".", "_")
            if who == "own":
                dataset = lance_spark.open_dataset(str(path))
                dataset.create_scalar_index(column, index_type, name, num_segments=2)
            else:
                lance.dataset(str(path)).create_scalar_index(column, index_type, name=name)
            names[name] = index_type
    change(path)
    dataset = lance_spark.open_dataset(str(path))
    for name, index_type in names.items():
        result = dataset.check_index(name)
        assert result.is_valid, result
        assert result.index_type.upper() == index_type
        assert result.num_rows > 9_000
        assert result.num_segments == (2 if who == "own" else 1)
        # The rows that were deleted since are in all indexes but those of zones.
        assert (result.stale > 0) == (index_type not in ("ZONEMAP", "BLOOMFILTER")), result


def small(path: Path, **options: Any) -> None:
    """Write a table with a column of each type, some of whose rows are deleted."""
    ids = np.arange(ROWS)
    f = ids * 0.5
    f[ids % 50 == 3] = np.nan
    f[7], f[11] = -0.0, np.copysign(np.nan, -1)
    table = pa.table(
        {
            "v": pa.array(ids % 400, mask=ids % 9 == 4),
            "f": pa.array(f, mask=ids % 10 == 1),
            "text": pa.array([f"word {number}" for number in ids.tolist()], mask=ids % 8 == 2),
            "list": pa.array(
                [
                    None if number % 12 == 5 else [f"tag{number % 40}", None, "all", "all"]
                    for number in ids.tolist()
                ]
            ),
        }
    )
    lance.write_dataset(table, str(path), max_rows_per_file=1_000, **options)
    lance_spark.open_dataset(str(path)).delete("v % 7 = 6")


def column_of(index_type: str) -> str:
    return {"NGRAM": "text", "LABEL_LIST": "list"}.get(index_type, "v")


def build(path: Path, index_type: str) -> None:
    lance_spark.open_dataset(str(path)).create_scalar_index(
        column_of(index_type), index_type, "i", **SMALL.get(index_type, {})
    )


def checked(path: Path) -> IndexCheck:
    return lance_spark.open_dataset(str(path)).check_index("i")


@pytest.mark.sample(5)
@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("stable", [False, True], ids=["plain", "stable"])
def test_a_small_index_is_valid(tmp_path: Path, index_type: str, stable: bool) -> None:
    path = tmp_path / "t.lance"
    small(path, enable_stable_row_ids=stable)
    for who in ("own", "pylance"):
        if who == "own":
            build(path, index_type)
        else:
            oracle = lance.dataset(str(path))
            oracle.create_scalar_index(column_of(index_type), index_type, name="i", replace=True)
        result = checked(path)
        assert result.is_valid, result
        assert (result.missing, result.wrong, result.stale, result.problems) == (0, 0, 0, ())
        assert result.num_rows == lance.dataset(str(path)).count_rows()


@pytest.mark.parametrize("index_type", TYPES)
def test_an_empty_index_is_valid(tmp_path: Path, index_type: str) -> None:
    path = tmp_path / "t.lance"
    small(path)
    dataset = lance_spark.open_dataset(str(path))
    dataset.create_scalar_index(column_of(index_type), index_type, "i", train=False)
    result = checked(path)
    assert result.is_valid
    assert result.num_rows == 0


Tamper = Callable[[pa.Array, np.ndarray], tuple[pa.Array, np.ndarray]]


def without_a_row(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    # Not the first or last row of a zone, so that the zone keeps its place.
    kept = np.delete(np.arange(len(ids)), 1500)
    return values.take(pa.array(kept)), ids[kept]


def without_the_last_row(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    return values[:-1], ids[:-1]


def with_a_row_of_no_one(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    return pa.concat_arrays([values, values[:1]]), np.append(ids, np.uint64(77 << 32))


def with_another_value(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    items = values.to_pylist()
    items[1500] = {"int64": 12_345, "string": "another text"}.get(str(values.type), ["other"])
    return pa.array(items, values.type), ids


def with_a_null(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    items = values.to_pylist()
    items[1500] = None
    return pa.array(items, values.type), ids


def tamper_parts(patch: pytest.MonkeyPatch, tamper: Tamper) -> None:
    """Change the values that an index is built of."""
    read = task.column_parts

    def parts(*arguments: Any) -> Iterator[ColumnPart]:
        for part in read(*arguments):
            yield ColumnPart(*tamper(part.values, part.ids), part.is_last)

    patch.setattr(task, "column_parts", parts)


def tampered(
    monkeypatch: pytest.MonkeyPatch, path: Path, index_type: str, tamper: Tamper
) -> IndexCheck:
    """Build an index of tampered rows with the writers of the package, and check it."""
    small(path)
    with monkeypatch.context() as patch:
        tamper_parts(patch, tamper)
        build(path, index_type)
    return checked(path)


@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("tamper", [without_a_row, without_the_last_row])
def test_a_missing_row_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, index_type: str, tamper: Tamper
) -> None:
    path = tmp_path / "t.lance"
    if index_type in ("ZONEMAP", "BLOOMFILTER") and tamper is without_a_row:
        # The place of a zone includes the row, and its filter or bounds may do so.
        return
    result = tampered(monkeypatch, path, index_type, tamper)
    assert not result.is_valid
    assert (result.missing, result.wrong) == (1, 0)
    assert "row address " in result.problems[0]
    assert "; the column has " in result.problems[0]


@pytest.mark.parametrize("index_type", TYPES)
@pytest.mark.parametrize("tamper", [with_another_value, with_a_null])
def test_a_wrong_value_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, index_type: str, tamper: Tamper
) -> None:
    result = tampered(monkeypatch, tmp_path / "t.lance", index_type, tamper)
    if index_type == "ZONEMAP":
        # The bounds are still wide enough.
        assert result.is_valid
        return
    assert not result.is_valid
    assert result.missing + result.wrong == 1
    assert "; the column has " in result.problems[0]


@pytest.mark.parametrize("index_type", TYPES)
def test_an_entry_of_no_row_is_stale(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, index_type: str
) -> None:
    result = tampered(monkeypatch, tmp_path / "t.lance", index_type, with_a_row_of_no_one)
    assert result.is_valid, result
    # Lists and texts have several entries; the list has a tag, null and another.
    assert result.stale == {"LABEL_LIST": 3, "NGRAM": 2}.get(index_type, 1)


def test_floats_are_compared_by_their_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tamper(values: pa.Array, ids: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        items = np.array([np.nan if item is None else item for item in values.to_pylist()])
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        items[np.isnan(items)] = np.copysign(np.nan, -1)
        items[items == 0] = 0.0
        return pa.array(items, mask=is_null), ids

    path = tmp_path / "t.lance"
    small(path)
    for index_type in ("BTREE", "BITMAP"):
        with monkeypatch.context() as patch:
            tamper_parts(patch, tamper)
            lance_spark.open_dataset(str(path)).create_scalar_index("f", index_type, "i")
        result = checked(path)
        # The sign of NaN does not count, but that of zero does.
        assert (result.missing, result.wrong) == (0, 1)
        assert "-0.0" in result.problems[0]
        lance_spark.open_dataset(str(path)).drop_index("i")


@pytest.mark.parametrize("who", ["own", "pylance"])
@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32()], ids=str)
def test_a_list_can_have_nans_of_both_signs(tmp_path: Path, who: str, dtype: pa.DataType) -> None:
    path = str(tmp_path / "t")
    items = np.array([np.nan, np.copysign(np.nan, -1), 1.5, np.nan])
    lists = pa.ListArray.from_arrays([0, 3, 4, 4], pa.array(items).cast(dtype))
    dataset = lance.write_dataset(pa.table({"l": lists}), path)
    (dataset if who == "pylance" else lance_spark.open_dataset(path)).create_scalar_index(
        "l", "LABEL_LIST", "i"
    )
    result = lance_spark.open_dataset(path).check_index("i")
    assert result.is_valid, result


def test_values_out_of_order_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def swapped(values: pa.Array) -> np.ndarray:
        order = order_of(values)
        order[[700, 1400]] = order[[1400, 700]]
        return order

    order_of = btree.order_of
    path = tmp_path / "t.lance"
    small(path)
    with monkeypatch.context() as patch:
        patch.setattr(btree, "order_of", swapped)
        build(path, "BTREE")
    result = checked(path)
    assert result.missing == 0
    assert result.wrong == 2
    assert all("which is less than" in problem for problem in result.problems)


def replace(path: Path, name: str, edit: Callable[[pa.Table], pa.Table]) -> None:
    """Write a file of the only index again, with the writer of the package."""
    table = lance_spark.open_dataset(str(path))._table
    (segment,) = indexes.section_of(table.manifest).indices
    with closing(IndexFiles(table.paths, segment).open(name)) as file:
        batch = read_columns(file, dict.fromkeys(file.schema.names))
        metadata = dict(file.schema.metadata)
    rows = edit(pa.Table.from_batches([batch]))
    place = f"_indices/{indexes.uuid_of(segment)}/{name}"
    (path / place).unlink()
    output = table.store.open_output(place)
    writer = FileWriter(output, Schema.from_arrow(rows.schema), (2, 2))
    for part in rows.combine_chunks().to_batches():
        writer.write(part)
    for key, value in metadata.items():
        writer.set_metadata(key, value.decode())
    writer.finish()
    output.close()


def with_value(name: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    """Return a function that sets one value of a table."""

    def edit(rows: pa.Table) -> pa.Table:
        items = rows[name].to_pylist()
        items[row] = value(items[row]) if callable(value) else value
        column = pa.array(items, rows[name].type)
        return rows.set_column(rows.column_names.index(name), rows.field(name), column)

    return edit


EDITS = [
    ("BTREE", "page_lookup.lance", with_value("max", 3, 1), "page 3: max is 1, but"),
    ("BTREE", "page_lookup.lance", with_value("min", 4, None), "page 4: min is None, but"),
    ("BTREE", "page_lookup.lance", with_value("null_count", 5, 3), "page 5: null_count is 3"),
    ("BTREE", "page_data.lance", with_value("ids", 900, 5), "the index has the row 2 times"),
    ("BTREE", "page_data.lance", lambda rows: rows.slice(300), "cannot be read"),
    ("BITMAP", FILES["BITMAP"], lambda rows: rows.slice(1), "the index does not have the row"),
    ("BITMAP", FILES["BITMAP"], with_value("keys", 5, 11), "the index has the row with 11"),
    ("LABEL_LIST", FILES["LABEL_LIST"], lambda rows: rows.slice(1), "not have the row with None"),
    ("NGRAM", FILES["NGRAM"], lambda rows: rows.slice(1), "does not have the row as null"),
    ("NGRAM", FILES["NGRAM"], with_value("posting_list", 5, b"no"), "cannot be read"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("max", 2, 398), "zone 2 has values from 0 to 398"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("min", 2, 1), "zone 2 has values from 1 to 399"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("null_count", 2, 1), "null_count is too small"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("null_count", 2, 999), "has values, but only counts"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("zone_length", 2, 5), "no zone has the row"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("zone_start", 2, 3), "no zone has the row"),
    ("ZONEMAP", FILES["ZONEMAP"], with_value("fragment_id", 2, 2**40), "outside of fragments"),
    ("BLOOMFILTER", FILES["BLOOMFILTER"], with_value("has_null", 1, False), "has_null is false"),
    ("BLOOMFILTER", FILES["BLOOMFILTER"], lambda rows: rows.slice(1), "no zone has the row"),
    (
        "BLOOMFILTER",
        FILES["BLOOMFILTER"],
        with_value("bloom_filter_data", 1, lambda data: bytes(len(data))),
        "the filter of zone 1 does not have the value",
    ),
]


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    ("index_type", "name", "edit", "text"), EDITS, ids=[f"{edit[0]}: {edit[3]}" for edit in EDITS]
)
def test_a_wrong_file_is_found(
    tmp_path: Path,
    index_type: str,
    name: str,
    edit: Callable[[pa.Table], pa.Table],
    text: str,
) -> None:
    path = tmp_path / "t.lance"
    small(path)
    build(path, index_type)
    assert checked(path).is_valid
    replace(path, name, edit)
    result = checked(path)
    assert not result.is_valid
    assert any(text in problem for problem in result.problems), result
    assert result.missing + result.wrong > 0
    assert len(result.problems) <= 20


def test_zones_that_are_read_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    small(path)
    build(path, "BLOOMFILTER")
    monkeypatch.setattr(files, "_KEPT_BYTES", 0)
    monkeypatch.setattr(files, "_WINDOW_BYTES", 3000)
    monkeypatch.setattr(files, "_HASHED_VALUES", 100)
    assert checked(path).is_valid


def test_a_set_of_billions_of_rows_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    small(path)
    build(path, "BITMAP")

    def all_rows(data: bytes) -> bytes:
        bitmaps = dict(RowSet.decode(data, "set").bitmaps)
        bitmaps[1].add_range(0, 2**32)
        bitmaps[1].run_optimize()
        return RowSet(bitmaps).encode()

    replace(path, FILES["BITMAP"], with_value("bitmaps", 1, all_rows))
    result = checked(path)
    assert 0 < result.wrong < ROWS
    assert result.stale > 2**31


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    small(path)
    build(path, "BITMAP")
    (file,) = path.glob("_indices/*/*")
    file.unlink()
    result = checked(path)
    assert result.missing == result.num_rows > 0
    assert "cannot be read" in result.problems[0]


def test_other_indexes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    small(path)
    lance.dataset(str(path)).create_scalar_index("text", "MINHASHLSH", name="i")
    with pytest.raises(InvalidInputError, match="of type MINHASH_LSH cannot be checked"):
        checked(path)
    with pytest.raises(InvalidInputError, match="index 'none' not found; the indexes are i"):
        lance_spark.open_dataset(str(path)).check_index("none")


def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    small(path)
    with monkeypatch.context() as patch:
        patch.setattr(bitmap, "BUILDER", dataclasses.replace(bitmap.BUILDER, version=7))
        build(path, "BITMAP")
    with pytest.raises(UnsupportedFeatureError, match="has version 7, which is unknown"):
        checked(path)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.lance"
    small(path)
    build(path, "BITMAP")
    assert main(["check-index", str(path), "i"]) == 0
    assert "index i (Bitmap) is valid: 2," in capsys.readouterr().out
    replace(path, FILES["BITMAP"], lambda rows: rows.slice(1))
    assert main(["check-index", str(path), "i"]) == 1
    message = capsys.readouterr().err
    assert "is not valid: " in message
    assert message.count("\n  segment ") == 20
