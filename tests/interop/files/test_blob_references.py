"""Blobs that refer to objects outside the table, and values that contradict themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import DatasetBasePath
from lance.blob import Blob, blob_field

import lance_spark
from lance_spark.errors import InvalidInputError, StorageError
from tests.interop.files.written_blobs import content, in_pieces, kinds
from tests.support.interop.blobs import (
    check_reads,
    extended,
    table,
)


def spoilt(data: Any, uri: Any, position: Any, size: Any) -> pa.Table:
    """Return a value whose parts contradict each other. The constructors of pylance refuse it."""
    dtype = blob_field("b").type
    parts = [
        pa.array([b"good", part], field.type)
        if field.name == "data"
        else pa.array([None, part], field.type)
        for field, part in zip(dtype.storage_type, (data, uri, position, size), strict=True)
    ]
    storage = pa.StructArray.from_arrays(parts, fields=list(dtype.storage_type))
    return table((pa.ExtensionArray.from_storage(dtype, storage), blob_field("b")))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((b"x", "file:///f", None, None), "both bytes and a URI"),
        ((b"", "file:///f", None, None), "both bytes and a URI"),
        ((None, None, None, None), "neither bytes nor a URI"),
        ((None, "file:///f", 1, None), "both, or neither"),
        ((None, "file:///f", None, 1), "both, or neither"),
        ((None, "file:///f", 0, 0), "range of no bytes"),
        ((b"x", None, 0, 1), "no URI"),
        ((None, "file:///f", 1 << 63, 1), "no file can have"),
        ((None, "file:///f", 1, (1 << 64) - 1), "no file can have"),
    ],
)
def test_values_that_contradict_themselves(tmp_path: Path, parts: Any, message: str) -> None:
    data = spoilt(*parts)
    for chosen in ({"allow_external_blob_outside_bases": True}, {"external_blob_mode": "ingest"}):
        with pytest.raises(InvalidInputError, match=f"'b': value 1 .*{message}"):
            lance_spark.write_dataset(data, str(tmp_path / "t"), **chosen)
        if parts[2] != 1 << 63 and parts[3] != (1 << 64) - 1:
            with pytest.raises(OSError, match="Blob v2 field 'b' row 1"):
                lance.write_dataset(data, str(tmp_path / "t"), data_storage_version="2.2", **chosen)
    assert not list(tmp_path.glob("t/data/*"))


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    folder = tmp_path / "objects"
    (folder / "sub").mkdir(parents=True)
    (folder / "f.bin").write_bytes(bytes(range(256)) * 8)
    (folder / "sub" / "a b%20é.bin").write_bytes(b"name with escapes")
    (tmp_path / "beside.bin").write_bytes(b"beside")
    return folder


def references(folder: Path) -> tuple[list[Any], list[bytes | None]]:
    uri, named = (folder / "f.bin").as_uri(), (folder / "sub" / "a b%20é.bin").as_uri()
    data = bytes(range(256)) * 8
    cases = [
        (Blob.from_uri(uri), data),
        (Blob.from_uri(uri, 10, 50), data[10:60]),
        (None, None),
        (Blob.from_bytes(b"inline"), b"inline"),
        (Blob.from_uri(named), b"name with escapes"),
        (Blob.empty(), b""),
        (Blob.from_uri(uri, 2_000, 48), data[2_000:]),
        (Blob.from_bytes(bytes(200)), bytes(200)),
    ]
    return [value for value, _ in cases], [expected for _, expected in cases]


@pytest.mark.parametrize(
    "chosen", [{"allow_external_blob_outside_bases": True}, {"external_blob_mode": "ingest"}]
)
def test_objects_outside_the_table(tmp_path: Path, objects: Path, chosen: Any) -> None:
    uris, expected = references(objects)
    data = table(extended(uris * 4))
    lance.write_dataset(data, str(tmp_path / "p"), data_storage_version="2.2", **chosen)
    lance_spark.write_dataset(in_pieces(data, 5), str(tmp_path / "t"), **chosen)
    assert content(tmp_path / "t") == expected * 4
    assert kinds(tmp_path / "t") == kinds(tmp_path / "p")
    check_reads(tmp_path / "t")


def test_references_below_a_base_path(tmp_path: Path, objects: Path) -> None:
    bases = [
        DatasetBasePath((tmp_path / "elsewhere").as_uri(), name="a", is_dataset_root=True),
        DatasetBasePath(objects.as_uri(), name="b", is_dataset_root=False),
        DatasetBasePath((objects / "sub").as_uri(), name="c", is_dataset_root=False),
    ]
    values, expected = references(objects)
    # Add a path, a URI with `..`, and a URI in another spelling.
    values += [
        str(objects / "f.bin"),
        f"file:{objects}/sub/../f.bin",
        f"file://localhost{objects}//f.bin",
    ]
    expected += [expected[0]] * 3
    data = table(extended(values))
    lance.write_dataset(data, str(tmp_path / "p"), data_storage_version="2.2", initial_bases=bases)
    lance.write_dataset(
        data.slice(0, 0), str(tmp_path / "t"), data_storage_version="2.2", initial_bases=bases
    )
    lance_spark.write_dataset(data, str(tmp_path / "t"), "append")
    assert content(tmp_path / "t") == expected
    check_reads(tmp_path / "t")
    uris = [description and description[4] for description in kinds(tmp_path / "t")]
    assert uris[0] == "f.bin"
    assert uris[4] == "a b%20é.bin"
    assert [description and description[2:] for description in kinds(tmp_path / "t")] == [
        description and description[2:] for description in kinds(tmp_path / "p")
    ]
    # An overwrite keeps the bases.
    lance_spark.write_dataset(data, str(tmp_path / "t"), "overwrite")
    assert content(tmp_path / "t") == expected
    for uri in (
        (tmp_path / "beside.bin").as_uri(),
        f"{objects.as_uri()}/../beside.bin",
        objects.as_uri(),
    ):
        with pytest.raises(InvalidInputError, match="below no base path"):
            lance_spark.write_dataset(table(extended([uri])), str(tmp_path / "t"), "append")


def test_references_are_refused_unless_allowed(tmp_path: Path, objects: Path) -> None:
    path = str(tmp_path / "t")
    object_uri = (objects / "f.bin").as_uri()
    with pytest.raises(
        InvalidInputError, match=r"'b': value 1 .*ingest.*allow_external_blob_outside_bases"
    ):
        lance_spark.write_dataset(table(extended([b"a", object_uri])), path)
    for uri in ("f.bin", str(objects / "f.bin"), "../f.bin"):
        with pytest.raises(InvalidInputError, match="absolute URI"):
            lance_spark.write_dataset(
                table(extended([uri])), path, allow_external_blob_outside_bases=True
            )
    for uri in (object_uri + "x", "nosuch://a/b"):
        with pytest.raises(StorageError):
            lance_spark.write_dataset(table(extended([uri])), path, external_blob_mode="ingest")
    for uri in (objects.as_uri(), "", "file:///"):
        data = spoilt(None, uri, None, None)
        with pytest.raises((InvalidInputError, StorageError)):
            lance_spark.write_dataset(data, path, external_blob_mode="ingest")
    with pytest.raises(InvalidInputError, match="neither reference nor ingest"):
        lance_spark.write_dataset(table(extended([b"a"])), path, external_blob_mode="copy")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="is for references"):
        lance_spark.write_dataset(
            table(extended([b"a"])),
            path,
            external_blob_mode="ingest",
            allow_external_blob_outside_bases=True,
        )
    assert not list(tmp_path.glob("t/data/*"))
