"""Conditions that leave all but frequent values, and regular expressions, by indexes."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark

ROWS = 120_000
COLUMNS = ("s", "f", "b", "i", "m")
#: Conditions, and whether an index answers them.
CONDITIONS = {
    **dict.fromkeys(
        [
            *("s <> 'common'", "not (s = 'common')", "s not in ('common')"),
            *("s not in ('common', 'odd')", "not (s in ('common', 'rare'))", "s not in ('none')"),
            *("f <> 0.0", "f not in (0.0, 1.5)", "f <> -0.0", "b = false", "not b", "b <> true"),
            *("i <> 7", "i not in (7, 8)", "not (i = 7 or i = 8)", "not (i < 8 and i > 6)"),
            *("m is not null", "m <> 'x'", "s <> 'common' and b", "s <> 'common' or i <> 7"),
            "not (s = 'common' and i = 7)",
        ],
        True,
    ),
    **dict.fromkeys(
        ["s <> 'rare'", "f <> 1.5", "b is not true", "not (i <> 7)", "s not in ('common', null)"],
        False,
    ),
}
#: Answers of more than one row in sixteen.
MANY = {"s not in ('none')"}


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    rng = np.random.default_rng(1)
    part = rng.random(ROWS)
    floats = np.where(part < 0.98, 0.0, np.where(part < 0.985, -0.0, 1.5))
    floats[part > 0.99] = np.nan
    mask = rng.random(ROWS) < 0.01
    numbers = np.where(part < 0.97, 7, (part * 1e6).astype(np.int64) % 50)
    words = np.where(part < 0.97, "common", np.where(part < 0.98, "rare", "odd"))
    texts = [f"Event {number % 97}: café-{number % 1009} done" for number in range(ROWS)]
    return pa.table(
        {
            "id": range(ROWS),
            "s": pa.array(words, mask=mask),
            "f": pa.array(floats, mask=mask),
            "b": pa.array(part < 0.99, mask=mask),
            "i": pa.array(numbers, mask=mask),
            "m": pa.array(np.where(part < 0.99, "x", "y"), mask=rng.random(ROWS) < 0.98),
            "t": pa.array(texts, mask=mask),
        }
    )


def both(path: str, text: str, **options: object) -> list[list[int]]:
    return [
        sorted(open_table(path).to_table(["id"], filter=text, **options)["id"].to_pylist())
        for open_table in (lance_spark.open_dataset, lance.dataset)
    ]


@pytest.mark.sample(5)
@pytest.mark.parametrize("index_type", ["BITMAP", "BTREE"])
@pytest.mark.parametrize("who", ["own", "pylance"])
def test_all_but_frequent_values(tmp_path: Path, rows: pa.Table, index_type: str, who: str) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows, path, max_rows_per_file=50_000)
    for column in COLUMNS:
        open_table = lance_spark.open_dataset if who == "own" else lance.dataset
        open_table(path).create_scalar_index(column, index_type)
    lance.dataset(path).delete("id % 13 = 1")
    dataset = lance_spark.open_dataset(path)
    for text, is_answered in CONDITIONS.items():
        own, other = both(path, text)
        scanned, _ = both(path, text, use_scalar_index=False)
        assert own == scanned == other, text
        assert dataset.count_rows(text) == len(own)
        if text not in MANY:
            assert ("_idx (" in dataset.explain(filter=text)) is is_answered, text


@pytest.mark.parametrize("who", ["own", "pylance"])
def test_regular_expressions(tmp_path: Path, rows: pa.Table, who: str) -> None:
    path = str(tmp_path / "t.lance")
    lance.write_dataset(rows.select(["id", "t"]), path, max_rows_per_file=50_000)
    open_table = lance_spark.open_dataset if who == "own" else lance.dataset
    open_table(path).create_scalar_index("t", "NGRAM")
    dataset = lance_spark.open_dataset(path)
    for text, is_answered in {
        "regexp_match(t, 'fé-1007')": True,
        "regexp_match(t, '-100[78] done$')": True,
        "regexp_match(t, 'fé-10?07 ')": False,
        "regexp_like(t, '^Event 9[0-9]?: .*-1007')": True,
        "t rlike '-1007 d'": True,
        "regexp_like(t, 'fé-(1007|1008)')": False,
        "t rlike 'nothing+ here'": True,
        "not (t rlike '-1007')": False,
    }.items():
        rows_found = dataset.to_table(["id"], filter=text)["id"].to_pylist()
        scanned = dataset.to_table(["id"], filter=text, use_scalar_index=False)["id"].to_pylist()
        assert rows_found == scanned, text
        if "rlike" not in text:
            assert both(path, text)[1] == sorted(scanned), text
        if rows_found:
            assert ("t_idx (" in dataset.explain(filter=text)) is is_answered, text
