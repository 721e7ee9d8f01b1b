"""Damaged files of INVERTED indexes: an error or an answer, never a crash or a hang.

An index is left out if the parameters of its tokenizer are known: the texts are read.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

import lance_spark
from lance_spark import query as q
from lance_spark.errors import LanceError, MissingFileError
from lance_spark.indexes import cache
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.row_sets import MovedRows
from lance_spark.indexes.text import wand
from lance_spark.indexes.text.build import stored_parts
from lance_spark.table.indexes import sections
from tests.fixtures.tables import fixtures, unpack
from tests.support.cells import number_of

QUERIES = [
    q.MatchQuery("w1 w2 w17", "s"),
    q.PhraseQuery("w1 w2", "s", slop=2),
    q.MatchQuery("w11", "s", fuzziness=1),
]


@pytest.fixture(scope="module", params=[(1, 128), (2, 128), (3, 256)], ids=str)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("text") / "t.lance", random.Random(5)
    texts = [
        " ".join(f"w{rng.randrange(40)}" for _ in range(rng.randrange(30))) for _ in range(900)
    ]
    texts += ["w1 " * 200, "w2 w1 " * 150]
    dataset = lance.write_dataset(pa.table({"s": texts}), str(path))
    version, block_size = request.param
    dataset.create_scalar_index(
        "s",
        "INVERTED",
        with_position=True,
        format_version=version,
        block_size=block_size,
        stem=False,
    )
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["metadata", "part_0_docs", "part_0_tokens", "part_0_invert"])
def test_damaged_files(
    path: Path, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wand, "_FEW_BLOCKS", 1)
    (file,) = path.glob(f"_indices/*/{name}.lance")
    content, rng = file.read_bytes(), random.Random(name)
    dataset = lance_spark.open_dataset(str(path))
    cache.CACHE.clear()
    expected = {
        query: sorted(dataset.to_table(["s"], full_text_query=query)["s"].to_pylist())
        for query in QUERIES
    }
    errors = 0
    try:
        for _ in range(number_of(40, 60)):
            data = bytearray(content)
            for _ in range(rng.choice([1, 1, 3, 30])):
                data[rng.randrange(len(data))] = rng.randrange(256)
            file.write_bytes(data)
            cache.CACHE.clear()
            for query in QUERIES:
                limit = rng.choice([None, 1])
                try:
                    dataset.to_table(["_score"], full_text_query=query, limit=limit)
                except LanceError:
                    errors += 1
        assert errors
        file.unlink()
        cache.CACHE.clear()
        if name == "metadata":
            with pytest.raises(MissingFileError, match="not found; rebuild the index"):
                dataset.to_table(["_score"], full_text_query=QUERIES[0])
        else:
            for query in QUERIES[:2]:
                rows = dataset.to_table(["s"], full_text_query=query)["s"].to_pylist()
                assert sorted(rows) == expected[query]
            assert "the index of column 's' is ignored" in caplog.text
        # Rows are not read if only the index is wanted, or if words are similar by the index.
        for query, options in ((QUERIES[0], {"fast_search": True}), (QUERIES[2], {})):
            with pytest.raises(MissingFileError, match="not found; rebuild the index"):
                dataset.to_table(["_score"], full_text_query=query, **options)
    finally:
        file.write_bytes(content)
        cache.CACHE.clear()


@pytest.mark.parametrize("name", ["docs", "tokens", "invert"])
def test_damaged_files_of_the_first_format(name: str, tmp_path: Path) -> None:
    names = ("0.27.2", "indexed_2.0")
    fixture = next(own for own in fixtures() if (own.release, own.name) == names)
    path = Path(fixture.path(lambda own: unpack(own, tmp_path)))
    dataset = lance_spark.open_dataset(str(path))
    segments = sections.section_of(dataset._table.manifest).indices
    segment = next(segment for segment in segments if segment.name == "words_idx")
    file = path / "_indices" / str(uuid.UUID(bytes=segment.uuid.uuid)) / f"{name}.lance"
    content, rng = file.read_bytes(), random.Random(name)
    errors = 0
    for round_number in range(80):
        data = bytearray(content)
        # Most damage is in the metadata, at the end.
        least = 0 if round_number % 2 else max(0, len(data) - 1500)
        for _ in range(rng.choice([1, 1, 3, 30])):
            data[rng.randrange(least, len(data))] = rng.randrange(256)
        file.write_bytes(data)
        cache.CACHE.clear()
        for query in (
            q.MatchQuery("word3 other1", "words"),
            q.PhraseQuery("word3 other1", "words"),
        ):
            try:
                dataset.to_table(["_score"], full_text_query=query, fast_search=True)
            except LanceError:
                errors += 1
    assert 0 < errors < 160


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["metadata", "part_0_docs", "part_0_tokens", "part_0_invert"])
def test_damaged_files_are_checked_and_merged(path: Path, name: str) -> None:
    (file,) = path.glob(f"_indices/*/{name}.lance")
    content, rng = file.read_bytes(), random.Random(name)
    dataset = lance_spark.open_dataset(str(path))
    (index,) = sections.section_of(dataset._table.manifest).indices
    errors = problems = 0
    try:
        for _ in range(25):
            data = bytearray(content)
            for _ in range(rng.choice([1, 3, 30])):
                data[rng.randrange(len(data))] = rng.randrange(256)
            file.write_bytes(data)
            cache.CACHE.clear()
            try:
                problems += not dataset.check_index("s_idx").is_valid
                files = IndexFiles(dataset._table.paths, index)
                for part in stored_parts(files, BitMap([0]), MovedRows(), None):
                    for _ in part.read(100_000):
                        pass
            except LanceError:
                errors += 1
        assert errors + problems
    finally:
        file.write_bytes(content)
        cache.CACHE.clear()
