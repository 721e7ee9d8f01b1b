"""Schemas, models, tokens, blobs and uncommitted merges by pylance's names, with both packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance.indices
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark import dataset as ours
from lance_spark.dataset import IvfModel, LanceFileWriter, LanceOperation, LanceSchema, PqModel
from lance_spark.errors import (
    CommitConflictError,
    CorruptFileError,
    InvalidInputError,
    InvalidOptionError,
)
from lance_spark.query import tokenize

VECTORS = np.random.default_rng(5).standard_normal((300, 8)).astype(np.float32)


def vector_table(path: Path) -> lance_spark.Dataset:
    data = pa.table({"v": pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), 8), "a": range(300)})
    return lance_spark.write_dataset(data, str(path))


@pytest.mark.parametrize("metric", ["l2", "cosine"])
def test_centroids(tmp_path: Path, metric: str) -> None:
    dataset = vector_table(tmp_path / "t")
    dataset = dataset.create_index("v", "IVF_FLAT", "i", metric=metric, num_partitions=3)
    theirs = lance.dataset(str(tmp_path / "t"))
    for names in ({"index_name": "i"}, {"column": "v"}):
        assert dataset.centroids(**names).equals(theirs.centroids(**names))
    model = dataset.get_ivf_model("i")
    assert (model.num_partitions, model.distance_type) == (3, metric)
    with pytest.raises(InvalidInputError, match="is not an index of vectors"):
        dataset.get_ivf_model("zz")
    with pytest.raises(InvalidInputError, match="has no index of vectors"):
        dataset.centroids(column="a")
    with pytest.raises(InvalidInputError, match="either index_name or column"):
        dataset.centroids()


def test_models_in_files(tmp_path: Path) -> None:
    """Each package reads the files of the other one."""
    vectors = pa.FixedSizeListArray.from_arrays(VECTORS[:4].ravel(), 8)
    for number, (writer, reader) in enumerate(
        ((lance.indices, ours), (ours, lance.indices), (ours, ours))
    ):
        path = str(tmp_path / f"m{number}")
        writer.IvfModel(vectors, "cosine").save(path)
        model = reader.IvfModel.load(path)
        assert model.centroids.equals(vectors)
        assert (model.distance_type, model.num_partitions) == ("cosine", 4)
        writer.PqModel(2, vectors, num_bits=4).save(path)
        book = reader.PqModel.load(path)
        assert book.codebook.equals(vectors)
        assert (book.num_subvectors, book.num_bits, book.dimension) == (2, 4, 8)
    with LanceFileWriter(tmp_path / "other") as file:
        file.write_batch(pa.table({"a": [1]}))
    for loaded in (IvfModel, PqModel):
        with pytest.raises(CorruptFileError, match="has no model"):
            loaded.load(tmp_path / "other")


def test_schemas_with_ids(tmp_path: Path) -> None:
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata=key),
            pa.field("s", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])),
            pa.field("l", pa.list_(pa.float32())),
        ],
        metadata={"k": "v"},
    )
    path = str(tmp_path / "t")
    dataset = lance_spark.write_dataset(schema.empty_table(), path)
    own, theirs = dataset.lance_schema, lance.dataset(path).lance_schema

    def described(field: Any) -> Any:
        children = [described(child) for child in field.children()]
        return field.name(), field.id(), dict(field.metadata), field.to_arrow(), children

    assert list(map(described, own.fields())) == list(map(described, theirs.fields()))
    assert own.to_pyarrow().equals(theirs.to_pyarrow(), check_metadata=True)
    for name in ("id", "zz"):
        fields = [schema.field(name) for schema in (own, theirs)]
        ids = [field and field.id() for field in fields]
        assert ids[0] == ids[1]
    assert own.field_case_insensitive("L").id() == theirs.field_case_insensitive("L").id()
    keys = [field.name() for field in own.unenforced_primary_key()]
    assert keys == [field.name() for field in theirs.unenforced_primary_key()] == ["id"]
    numbered = LanceSchema.from_pyarrow(schema)
    assert [field.id() for field in numbered.fields()] == [0, 1, 4]
    operation = LanceOperation.Project(LanceSchema(own.__class__.from_pyarrow(schema)._schema))
    assert lance_spark.Dataset.commit(dataset, operation, 1).schema.names == ["id", "s", "l"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stem": False},
        {"stem": None, "remove_stop_words": False},
        {"base_tokenizer": "whitespace", "lower_case": False},
        {"base_tokenizer": "ngram", "min_ngram_length": 2},
        {"base_tokenizer": "raw"},
        {"max_token_length": 5},
        {"max_token_length": None},
        {"language": "German"},
        {"custom_stop_words": ["dogs"]},
        {"ascii_folding": False},
    ],
    ids=str,
)
def test_tokens(options: dict[str, Any]) -> None:
    for text in ("the Cats and  Dogs-running é x1", "", "the and", "Straße ÄÖ 12,5 don't"):
        tokens = [
            [(token.text, token.position) for token in split(text, **options)]
            for split in (lance.tokenize, tokenize)
        ]
        assert tokens[0] == tokens[1], text
    with pytest.raises(InvalidOptionError):
        tokenize("a", no_option=1)


def test_blob_values(tmp_path: Path) -> None:
    """The same values are written by both, and read by both."""
    file = tmp_path / "file"
    file.write_bytes(b"0123456789")
    uri = file.as_uri()
    for number, (package, write) in enumerate(
        ((lance, lance.write_dataset), (ours, lance_spark.write_dataset))
    ):
        blobs = package.blob_array(
            [
                b"x", bytearray(b"yy"), uri, None, package.Blob.empty(),
                package.Blob.from_uri(uri, 2, 3), package.Blob.from_bytes(b"z"),
            ]
        )  # fmt: skip
        data = pa.table({"b": blobs, "id": range(7)})
        field = package.blob_field("b", inline_size_threshold=1)
        assert field.type == blobs.type
        schema = pa.schema([field, data.schema.field("id")])
        path = str(tmp_path / f"t{number}")
        options: dict[str, Any] = {
            "data_storage_version": "2.2",
            "allow_external_blob_outside_bases": True,
        }
        write(data.cast(schema), path, **options)
        expected = [b"x", b"yy", b"0123456789", None, b"", b"234", b"z"]
        own = lance_spark.open_dataset(path)
        read = own.to_table(blob_handling="all_binary")
        assert read["b"].to_pylist() == expected
        indices = [number for number, value in enumerate(expected) if value is not None]
        theirs = lance.dataset(path).take_blobs("b", indices=indices)
        assert [blob.readall() for blob in theirs] == [expected[number] for number in indices]
        kinds = [row and row["kind"] for row in own.to_table()["b"].to_pylist()]
        assert kinds[:2] == [0, 1]


@pytest.mark.parametrize(
    "make",
    [
        lambda package: package.Blob(),
        lambda package: package.Blob(b"x", "u"),
        lambda package: package.Blob(uri=""),
        lambda package: package.Blob(b"x", position=1, size=1),
        lambda package: package.Blob(uri="u", position=1),
        lambda package: package.Blob(uri="u", position=1, size=0),
        lambda package: package.Blob.from_uri("u", -1, 2),
        lambda package: package.blob_array([3]),
        lambda package: package.blob_field("b", inline_size_threshold=-1),
        lambda package: package.blob_field("b", dedicated_size_threshold=0),
        lambda package: package.blob_field("b", pack_file_size_threshold=True),
    ],
)
def test_wrong_blobs(make: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make(lance)
    with pytest.raises(InvalidInputError):
        make(ours)


def test_merges_without_a_commit(tmp_path: Path) -> None:
    answers = []
    for name, write, dataset_class, conflict in (
        ("a", lance.write_dataset, lance.LanceDataset, OSError),
        ("b", lance_spark.write_dataset, lance_spark.Dataset, CommitConflictError),
    ):
        path = str(tmp_path / name)
        dataset = write(pa.table({"id": [1, 2, 3], "v": ["a", "b", None]}), path)
        new = pa.table({"id": [2, 4], "v": ["x", "y"]})
        merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        transaction, counts = merge.execute_uncommitted(new)
        late, _ = merge.execute_uncommitted(new)
        assert lance.dataset(path).version == 1
        committed = dataset_class.commit(path, transaction, transaction.read_version)
        rows = sorted(committed.to_table().to_pylist(), key=lambda row: row["id"])
        assert rows == sorted(lance.dataset(path).to_table().to_pylist(), key=lambda r: r["id"])
        names = ("num_inserted_rows", "num_updated_rows", "num_deleted_rows")
        answers.append((rows, [counts[key] for key in names], committed.version))
        with pytest.raises(conflict):
            dataset_class.commit(path, late, late.read_version)
    assert answers[0] == answers[1]
