"""Tables that tests of `LanceTable` change, and checks after each change."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from lance_spark.dataset.write import write_dataset
from tests.support.cells import number_of
from tests.support.tables.stored_files import files, named

#: Rows of the large table: 2,000,000 by `make test-long`.
ROWS = number_of(400_000, 2_000_000)
FRAGMENTS = 50
#: Rows of each of its fragments.
PART = ROWS // FRAGMENTS


def large_rows(rows: int = ROWS) -> pa.Table:
    """Return rows of types that changes must preserve: nanoseconds, vectors, texts, nulls."""
    ids = np.arange(rows)
    random = np.random.default_rng(7)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(random.random(rows * 8, np.float32)), 8)
    texts = pa.array([f"text {n}" for n in range(1000)]).take(pa.array(ids % 1000))
    return pa.table(
        {
            "id": ids,
            "g": pa.array((ids % 100).astype(np.int32), mask=ids % 101 == 0),
            "text": texts,
            "ts": pa.array(ids * 1_000_000_007 + 1, pa.timestamp("ns", "UTC")),
            "vector": vectors,
        }
    )


def write_large(path: Path) -> pa.Table:
    """Write the table of 50 fragments; return its rows."""
    rows = large_rows()
    write_dataset(rows, str(path), max_rows_per_file=PART)
    return rows


def copied(source: Path, target: Path) -> Path:
    """Copy a table with hard links to its data files, which no test changes."""

    def link(source: str, target: str) -> None:
        if Path(source).suffix == ".lance":
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    shutil.copytree(source, target, copy_function=link)
    return target


def checked(path: Path) -> lance.LanceDataset:
    """Open a table by pylance, and check that it is valid and has no unreferenced files."""
    dataset = lance.dataset(path)
    dataset.validate()
    assert left_over(path) == set()
    return dataset


def left_over(path: Path) -> set[str]:
    """Return data files and deletion files that no version refers to."""
    folders = {item.name for item in (path / "data").iterdir() if not item.is_file()}
    return files(path) - named(path) - folders


def delete_meanwhile(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, path: Path, conditions: list[str]
) -> None:
    """Let another client delete rows before the commit of each attempt, by one of the
    conditions.
    """
    run = module.run_delete

    def slow(*arguments: Any) -> Any:
        done = run(*arguments)
        if conditions:
            lance.dataset(path).delete(conditions.pop(0))
        return done

    monkeypatch.setattr(module, "run_delete", slow)


def typed_rows(count: int) -> pa.Table:
    """Return rows of many types, with nulls."""
    numbers = np.arange(count)
    columns = {
        "flag": pa.array(numbers % 3 == 0),
        "small": pa.array((numbers % 100).astype(np.int8)),
        "price": pa.array(numbers / 8),
        "large": pa.array(numbers).cast(pa.decimal128(38, 2)),
        "at": pa.array(numbers * 10**12).cast(pa.timestamp("us", "UTC")),
        "clock": pa.array(numbers * 10**12).cast(pa.timestamp("us")),
        "day": pa.array(numbers.astype(np.int32)).cast(pa.date32()),
        "word": pa.array([f"wörd {n % 37}" * (n % 3) for n in numbers]),
        "raw": pa.array([bytes([n % 256]) * (n % 5) for n in numbers]),
        "list": pa.array([[n, None][: n % 3] for n in numbers]),
        "struct": pa.array([{"a": n, "b": {"c": str(n)}} for n in numbers]),
        "map": pa.array([[("k", n)] * (n % 2) for n in numbers], pa.map_("string", "int64")),
    }
    absent = pa.array(numbers, mask=numbers % 7 == 3)
    return pa.table(
        {"id": numbers} | {name: column.take(absent) for name, column in columns.items()}
    )
