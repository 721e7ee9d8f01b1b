"""Keywords that only pylance has: taken under their other name, without an effect, or refused."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark import BasePath
from lance_spark.arguments import keywords_of, pylance_keywords
from lance_spark.errors import InvalidInputError, LanceError, UnsupportedFeatureError


@pylance_keywords(
    renamed={"where": "filters"}, unused=("hint",), refused={"mode": ((True,), "leave it out")}
)
def change(rows: object, filters: object = None) -> tuple[object, object]:
    return rows, filters


@pylance_keywords(renamed={"title": "name"})
@dataclass(frozen=True, slots=True)
class Named:
    name: str = ""


def test_keywords_are_taken() -> None:
    assert change(1, where=2, hint=3, mode=None) == (1, 2)
    assert change(1, 2, mode=True) == (1, 2)
    assert Named(title="x") == Named("x")


def test_keywords_are_not_in_the_signature() -> None:
    assert list(inspect.signature(change).parameters) == ["rows", "filters"]
    assert list(inspect.signature(Named).parameters) == ["name"]
    assert keywords_of(lance_spark.Dataset.update).renamed == {"where": "filters"}


def test_both_names_are_an_error() -> None:
    with pytest.raises(InvalidInputError, match="give filters, and not where"):
        change(1, filters=2, where=2)


def test_other_values_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="mode is not supported; leave it out"):
        change(1, mode=False)


def test_unknown_keywords_are_an_error_of_python() -> None:
    with pytest.raises(TypeError, match="other"):
        change(1, other=2)


@pytest.mark.parametrize("arguments", [("/x", "n", True, 3), (0, ""), (True, 5)])
def test_base_paths_are_checked(arguments: tuple[object, ...]) -> None:
    """pylance's class has other places: the path first, and then the name."""
    with pytest.raises(InvalidInputError, match="base path"):
        BasePath(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filter": {"search_filter": "x"}}, "search_filter of filter is not supported"),
        ({"filter": {"where": "x"}}, "the keys of filter must be"),
        ({"columns": {"x": "q"}}, "column q not found"),
    ],
)
def test_errors_name_the_table(arguments: dict[str, object], message: str, tmp_path: Path) -> None:
    dataset = lance_spark.write_dataset(pa.table({"a": [1]}), tmp_path / "t.lance")
    with pytest.raises(LanceError, match=f"t.lance: .*{message}"):
        dataset.to_table(**arguments)
