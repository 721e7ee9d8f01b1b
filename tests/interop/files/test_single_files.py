"""Single data files: readers, writers and sessions of both packages, with the same calls."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance.file
import pyarrow as pa
import pytest

from lance_spark import dataset as ours
from lance_spark.dataset import LanceFileReader, LanceFileWriter
from lance_spark.errors import (
    InvalidInputError,
    MissingFileError,
    SchemaMismatchError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)

PACKAGES: dict[str, Any] = {
    "pylance": lance.file,
    "ours": SimpleNamespace(**{name: getattr(ours, name) for name in ours.__all__}),
}
VERSIONS = ["2.0", "2.1", "2.2", "2.3"]
SCHEMA = pa.schema(
    [
        pa.field("a", pa.int64()),
        pa.field("t", pa.string()),
        pa.field("l", pa.list_(pa.float32())),
        pa.field("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ],
    metadata={"k": "v"},
)


def rows(count: int) -> pa.Table:
    """Return rows with nulls, except of structs: version 2.0 cannot store those."""
    return pa.table(
        {
            "a": [None if number % 3 == 0 else number for number in range(count)],
            "t": [None if number % 4 == 1 else f"t{number}" for number in range(count)],
            "l": [None if number % 5 == 0 else [1.5] * (number % 3) for number in range(count)],
            "s": [{"x": number, "y": None if number % 2 else "y"} for number in range(count)],
            "v": [None if number % 7 == 0 else [number, 1] for number in range(count)],
        },
        schema=SCHEMA,
    )


def written(package: Any, path: Path, data: pa.Table, **options: Any) -> Path:
    with package.LanceFileWriter(str(path), SCHEMA, **options) as writer:
        for batch in data.to_batches(max_chunksize=1000):
            writer.write_batch(batch)
        assert writer.add_global_buffer(b"hello") == 1
        writer.add_schema_metadata("more", "1")
    assert writer.closed
    assert writer.size_bytes == path.stat().st_size
    assert writer.close() is None
    return path


@pytest.mark.parametrize("count", [0, 5, 2500])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("writer", PACKAGES)
def test_both_read_the_same(tmp_path: Path, writer: str, version: str, count: int) -> None:
    data = rows(count)
    path = written(PACKAGES[writer], tmp_path / "f.lance", data, version=version)
    theirs, own = lance.file.LanceFileReader(str(path)), LanceFileReader(path)
    assert own.num_rows() == theirs.num_rows() == count
    expected = theirs.read_all().to_table()
    assert own.read_all().to_table().equals(expected)
    assert expected.to_pylist() == data.to_pylist()
    sizes = [
        [batch.num_rows for batch in reader.read_all(batch_size=700).to_batches()]
        for reader in (own, theirs)
    ]
    assert sizes[0] == sizes[1]
    half = count // 2
    for call in (
        lambda reader: reader.read_range(half, count - half).to_table(),
        lambda reader: reader.take_rows([]).to_table(),
        lambda reader: reader.take_rows(list(range(0, count, 3)), batch_size=7).to_table(),
    ):
        assert call(own).equals(call(theirs))
    assert own.read_global_buffer(1) == theirs.read_global_buffer(1) == b"hello"
    assert own.read_global_buffer(0) == theirs.read_global_buffer(0)
    for columns in (["s.x"], ["s"], ["a", "s.y"], ["v", "a"]):
        chosen = [
            reader(str(path), columns=columns).read_all().to_table()
            for reader in (lance.file.LanceFileReader, LanceFileReader)
        ]
        assert chosen[0].equals(chosen[1])


@pytest.mark.parametrize("version", VERSIONS)
def test_both_describe_the_same(tmp_path: Path, version: str) -> None:
    path = written(lance.file, tmp_path / "f.lance", rows(500), version=version)
    theirs, own = lance.file.LanceFileReader(str(path)), LanceFileReader(path)
    names = (
        "num_rows", "num_data_bytes", "num_column_metadata_bytes", "num_global_buffer_bytes",
        "major_version", "minor_version", "schema",
    )  # fmt: skip
    metadata = [reader.metadata() for reader in (theirs, own)]
    for name in names:
        assert getattr(metadata[0], name) == getattr(metadata[1], name), name
    assert metadata[0].schema.metadata == metadata[1].schema.metadata
    places = [
        [
            [(buffer.position, buffer.size) for buffer in part]
            for part in (
                result.global_buffers,
                *(column.column_buffers for column in result.columns),
                *(page.buffers for column in result.columns for page in column.pages),
            )
        ]
        for result in metadata
    ]
    assert places[0] == places[1]
    statistics = [
        [(column.num_pages, column.size_bytes) for column in reader.file_statistics().columns]
        for reader in (theirs, own)
    ]
    assert statistics[0] == statistics[1]


def test_stable_version() -> None:
    assert ours.stable_version() == lance.file.stable_version()


def test_extension_types(tmp_path: Path) -> None:
    data = pa.table({"u": pa.array([b"0" * 16, None], pa.uuid()), "j": pa.array([1, None])})
    for name, package in PACKAGES.items():
        path = str(tmp_path / name)
        with package.LanceFileWriter(path) as writer:
            writer.write_batch(data)
        for reader in PACKAGES.values():
            assert reader.LanceFileReader(path).read_all().to_table() == data


def test_pages_have_a_size(tmp_path: Path) -> None:
    data = pa.table({"a": range(100_000), "b": range(100_000)})
    for options in ({"max_page_bytes": 100_000}, {"data_cache_bytes": 200_000}):
        path = str(tmp_path / "f")
        with LanceFileWriter(path, **options) as writer:
            for batch in data.to_batches(max_chunksize=5000):
                writer.write_batch(batch)
        pages = [column.num_pages for column in LanceFileReader(path).file_statistics().columns]
        assert min(pages) > 5
        assert lance.file.LanceFileReader(path).read_all().to_table() == data


def test_data_files_of_tables(tmp_path: Path) -> None:
    """A file of a table is read as it is: with deleted rows, without row ids."""
    dataset = ours.write_dataset(rows(20), str(tmp_path / "t")).delete("a < 5")
    (file,) = dataset.fragments[0].files
    path = tmp_path / "t" / "data" / file.path
    own = LanceFileReader(path).read_all().to_table()
    assert own == lance.file.LanceFileReader(str(path)).read_all().to_table()
    assert own.num_rows == 20
    session = dataset.new_file_session()
    assert session.open_reader(f"data/{file.path}").num_rows() == 20
    old = ours.write_dataset(pa.table({"a": [1]}), tmp_path / "old", data_storage_version="legacy")
    (file,) = old.fragments[0].files
    with pytest.raises(UnsupportedFeatureError, match="as tables only"):
        LanceFileReader(tmp_path / "old" / "data" / file.path)


def test_refused_calls(tmp_path: Path) -> None:
    path = written(PACKAGES["ours"], tmp_path / "f.lance", rows(5))
    reader = LanceFileReader(path)
    for call in (
        lambda: reader.read_range(1, 5),
        lambda: reader.read_range(-1, 1),
        lambda: reader.take_rows([2, 0]),
        lambda: reader.take_rows([0, 0]),
        lambda: reader.take_rows([9]),
        lambda: reader.read_all(batch_size=0),
        lambda: LanceFileReader(path, columns=["zz"]),
        lambda: LanceFileReader(path, columns=[]),
        lambda: LanceFileReader(""),
        lambda: LanceFileWriter(tmp_path / "g").close(),
        lambda: LanceFileWriter(tmp_path / "g", max_page_bytes=0),
    ):
        with pytest.raises(InvalidInputError):
            call()
    with pytest.raises(MissingFileError):
        LanceFileReader(tmp_path / "none")
    with pytest.raises(UnsupportedFeatureError):
        LanceFileWriter(tmp_path / "g", version="legacy")
    blobs = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    with pytest.raises(UnsupportedTypeError):
        LanceFileWriter(tmp_path / "g", pa.schema([blobs]))
    assert not (tmp_path / "g").exists()


def test_rows_of_other_types_are_refused(tmp_path: Path) -> None:
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with LanceFileWriter(tmp_path / "f", required) as writer:
        with pytest.raises(SchemaMismatchError):
            writer.write_batch(pa.table({"a": ["x"]}))
        with pytest.raises(SchemaMismatchError):
            writer.write_batch(pa.table({"b": [1]}))
        with pytest.raises(InvalidInputError, match="null"):
            writer.write_batch(pa.table({"a": pa.array([None], pa.int64())}))
        writer.write_batch(pa.table({"a": [1]}))
    assert lance.file.LanceFileReader(str(tmp_path / "f")).num_rows() == 1
    with pytest.raises(InvalidInputError, match="is closed"):
        writer.write_batch(pa.table({"a": [1]}))


def test_a_failed_block_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(SchemaMismatchError),
        LanceFileWriter(tmp_path / "f", SCHEMA) as writer,
    ):
        writer.write_batch(pa.table({"x": [1]}))
    assert list(tmp_path.iterdir()) == []


def test_sessions(tmp_path: Path) -> None:
    answers = []
    for name, package in (("a", lance.file), ("b", PACKAGES["ours"])):
        folder = tmp_path / name
        folder.mkdir()
        session = package.LanceFileSession(str(folder))
        with session.open_writer("sub/x.lance", schema=SCHEMA, version="2.1") as writer:
            writer.write_batch(rows(3))
        local = tmp_path / "local"
        local.write_bytes(b"0123456789")
        session.upload_file(local, "up")
        session.download_file("up", str(tmp_path / "down"))
        listed = session.list_with_delimiter()
        answers.append(
            [
                sorted(session.list()),
                session.list("sub"),
                (listed.common_prefixes, listed.objects),
                (session.contains("up"), session.contains("sub"), session.contains("no")),
                session.read_range("up", 2, 3),
                (tmp_path / "down").read_bytes(),
                session.open_reader("sub/x.lance", ["a"]).read_all().to_table(),
            ]
        )
        session.delete_file("up")
        assert not session.contains("up")
        with pytest.raises(OSError if name == "a" else MissingFileError):
            session.delete_file("up")
    assert answers[0] == answers[1]
    with pytest.raises(InvalidInputError, match="out of range"):
        session.read_range("sub/x.lance", 0, 1 << 20)
    with pytest.raises(MissingFileError):
        session.open_reader("none")
