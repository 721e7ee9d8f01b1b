"""Searches with a limit look only at documents that may be among the best.

They decode some blocks of postings, or score some ranges of documents whose postings are decoded.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.text import block_max, wand
from lance_spark.indexes.text.files import TextIndexPart, TokenBlocks, open_index
from lance_spark.indexes.text.queries import FullTextOperator, MatchQuery
from lance_spark.table.indexes import sections
from tests.interop.text.tables import oracle_scores, own_scores

ROWS = 30_000
AND = FullTextOperator.AND
QUERIES = [
    *("w0", "w1 w2", "w0 w40", "w60 w1 w1"),
    *(MatchQuery(words, "s", operator=AND, boost=2.5) for words in ("w0 w1", "w1 w50")),
    MatchQuery("w1x", "s", fuzziness=1),
]


@pytest.fixture(scope="module", params=["pylance", "two segments", "format 1", "long blocks"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose texts are longer and longer, and have few words often."""
    folder: Path = tmp_path_factory.mktemp("skipping") / "t.lance"
    rng = np.random.default_rng(1)
    texts = []
    for row in range(ROWS):
        words = (rng.random(3 + row // 2_000) ** 3 * 70).astype(int).tolist()
        texts.append(" ".join(f"w{word}" for word in words))
    table = pa.table({"id": range(ROWS), "s": texts})
    dataset = lance.write_dataset(table, str(folder), max_rows_per_file=ROWS // 2)
    if request.param == "two segments":
        lance_spark.open_dataset(str(folder)).create_scalar_index(
            "s", "INVERTED", num_segments=2, stem=False
        )
    else:
        version = {"pylance": 2, "format 1": 1, "long blocks": 3}[request.param]
        block_size = 256 if version == 3 else 128
        dataset.create_scalar_index(
            "s", "INVERTED", stem=False, format_version=version, block_size=block_size
        )
    return folder


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Parts of the blocks of a query that are decoded at once."""
    decode, result = TokenBlocks.decoded, []

    def counted(blocks: TokenBlocks, numbers: Any = None) -> Any:
        count = len(blocks.firsts)
        result.append((count if numbers is None else len(numbers)) / max(count, 1))
        return decode(blocks, numbers)

    monkeypatch.setattr(TokenBlocks, "decoded", counted)
    monkeypatch.setattr(TextIndexPart, "has_decoded", lambda part, tokens: False)
    monkeypatch.setattr(wand, "_FEW_BLOCKS", 4)
    monkeypatch.setattr(wand, "_FIRST_ROUND", 2)
    return result


@pytest.mark.sample(5)
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_best_rows(query: Any, path: Path, decoded: list[float]) -> None:
    every = own_scores(path, query)
    decoded.clear()
    for limit in (1, 10, 300):
        scores = own_scores(path, query, limit=limit)
        assert scores == dict(list(every.items())[:limit])
        oracle = oracle_scores(path, query, limit=limit)
        assert list(scores.values()) == pytest.approx(list(oracle.values()), rel=1e-6)
        if query == "w0" and limit == 10 and decoded:
            assert 0 < sum(decoded) < 0.6


@pytest.mark.sample(5)
@pytest.mark.parametrize("most", [0.0, 1.0])
@pytest.mark.parametrize("query", [*QUERIES, "none w2 w3 w69"], ids=str)
def test_best_rows_of_decoded_postings(
    query: Any, most: float, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "_FEW_POSTINGS": 0,
        "_FIRST_ROUND": 2,
        "_RANGES_OF_BEST": 0,
        "_MOST": most,
    }.items():
        monkeypatch.setattr(block_max, name, value)
    # No token has so many blocks that they are decoded apart.
    monkeypatch.setattr(wand, "_FEW_BLOCKS", ROWS)
    search, ranges = block_max._BlockMaxSearch._scored, []

    def counted(own: Any, chosen: Any) -> Any:
        ranges.append(len(chosen) / len(own._matches))
        return search(own, chosen)

    monkeypatch.setattr(block_max._BlockMaxSearch, "_scored", counted)
    every = own_scores(path, query)
    for limit in (1, 10, 300):
        ranges.clear()
        scores = own_scores(path, query, limit=limit)
        assert scores == dict(list(every.items())[:limit])
        oracle = oracle_scores(path, query, limit=limit)
        assert list(scores.values()) == pytest.approx(list(oracle.values()), rel=1e-5)
        if query == "w1 w2" and limit == 1:
            assert 0 < sum(ranges) < 0.9 if most else not ranges


@pytest.mark.parametrize("factor", [0.1, 0.0, np.nan])
def test_wrong_scores_of_blocks(
    factor: float, path: Path, decoded: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks_of = TextIndexPart.token_blocks

    def wrong(part: TextIndexPart, tokens: Any) -> list[TokenBlocks]:
        blocks = blocks_of(part, tokens)
        factors = [np.where(np.arange(len(own.scores)) % 2, factor, 1) for own in blocks]
        return [
            replace(own, scores=(own.scores * part_factors).astype(np.float32))
            for own, part_factors in zip(blocks, factors, strict=True)
        ]

    monkeypatch.setattr(TextIndexPart, "token_blocks", wrong)
    # All postings are decoded if a document that is found has a greater score than its block.
    every = own_scores(path, "w1")
    assert own_scores(path, "w1", limit=1000) == dict(list(every.items())[:1000])


def test_a_check_of_wrong_scores(tmp_path: Path) -> None:
    table = pa.table({"s": [" ".join(["x"] * (1 + row // 50) + ["y"]) for row in range(300)]})
    dataset = lance_spark.write_dataset(table, str(tmp_path / "t.lance"), mode="create")
    dataset = dataset.create_scalar_index("s", "INVERTED")
    assert dataset.check_index("s_idx").is_valid
    (file,) = tmp_path.glob("t.lance/_indices/*/part_0_invert.lance")
    (segment,) = sections.read_section(dataset._table.manifest).indices
    _, (part,) = open_index(IndexFiles(dataset._table.paths, segment))
    content, (blocks,) = file.read_bytes(), part.token_blocks(["x"])
    block = blocks.blocks.data[blocks.blocks.starts[1] : blocks.blocks.stops[1]].tobytes()
    assert content.count(block) == 1
    file.write_bytes(content.replace(block, np.float32(0.001).tobytes() + block[4:]))
    result = dataset.check_index("s_idx")
    (problem,) = result.problems
    assert problem.endswith("token 'x': the score of a block is too small")
