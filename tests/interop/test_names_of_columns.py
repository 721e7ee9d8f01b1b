"""Names of columns that pylance does not read: no writer makes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError

#: pylance takes names of columns for paths, and a process with pylance ends at a NUL character.
WRONG = ["a.b", "a\0b", "a`b", "`a`", ""]


@pytest.mark.parametrize("name", WRONG)
def test_names_that_are_refused(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=r"rename|no name"):
        lance_spark.write_dataset(pa.table({name: [1]}), path)
    dataset = lance_spark.write_dataset(pa.table({"a": [{"x": 1}]}), path)
    with pytest.raises(InvalidInputError, match=r"rename|no name"):
        dataset.add_columns(pa.field(name, pa.int64()))
    for column in ("a", "a.x"):
        with pytest.raises(InvalidInputError, match=r"rename|no name"):
            dataset.alter_columns({"path": column, "name": name})
    assert lance_spark.open_dataset(path).schema == dataset.schema


def test_a_child_with_a_nul_character(tmp_path: Path) -> None:
    """Dots are allowed in names of children, as by pylance."""
    with pytest.raises(InvalidInputError, match=r"column 'x\\x00y' has a NUL character"):
        lance_spark.write_dataset(pa.table({"a": [{"x\0y": 1}]}), str(tmp_path / "t"))
