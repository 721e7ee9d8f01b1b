"""Searches of lists: results by Spark and by pylance, and refusals."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.encoding.rows import RowRanges
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.predicates.sql import parse_predicate

TYPES = {
    "l": pa.list_(pa.int32()),
    "big": pa.large_list(pa.int64()),
    "fixed": pa.list_(pa.float32(), 2),
    "s": pa.list_(pa.string()),
    "codes": pa.list_(pa.dictionary(pa.int8(), pa.string())),
    "nested": pa.list_(pa.list_(pa.int32())),
    "i": pa.int32(),
}
BATCH = pa.record_batch(
    {
        "l": pa.array([[1, 2], [2, None], [], None, [1, 1], [None]], TYPES["l"]),
        "big": pa.array([[1, 2], [2, None], [], None, [1, 1], [None]], TYPES["big"]),
        "fixed": pa.array(
            [[1, 2], [2, None], [0.0, -0.0], None, [float("nan"), 1], [None, None]], TYPES["fixed"]
        ),
        "s": pa.array([["a", "b"], ["b", None], [], None, ["a", "a"], [None]], TYPES["s"]),
        "codes": pa.array([["a", "b"], ["b", None], [], None, ["a", "a"], [None]], TYPES["s"]).cast(
            TYPES["codes"]
        ),
        "nested": pa.nulls(6, TYPES["nested"]),
        "i": pa.array(range(6), pa.int32()),
    }
)
SCHEMA = Schema.from_arrow(pa.schema(TYPES))
#: Results for each row by Spark 4.3 or pylance 14: true, false or null.
RESULTS = {
    "array_contains(l, 1)": "TNFNTN",
    "array_contains(l, 1L)": "TNFNTN",
    "array_contains(l, 1.5)": "FNFNFN",
    "array_contains(l, CAST(NULL AS INT))": "NNNNNN",
    "arrays_overlap(l, array(1))": "TNFNTN",
    "arrays_overlap(l, array(1, NULL))": "TNFNTN",
    "arrays_overlap(l, array(7, NULL))": "NNFNNN",
    "arrays_overlap(l, array(NULL))": "NNFNNN",
    "arrays_overlap(l, array())": "FFFNFF",
    "arrays_overlap(array(1, 2), l)": "TTFNTN",
    "array_has(l, 1)": "TFFNTF",
    "array_has(l, NULL)": "NNNNNN",
    "array_has_any(l, [1, 7])": "TFFNTF",
    "array_has_any(l, make_array(1))": "TFFNTF",
    "array_has_any(l, [7, NULL])": "FTFNFT",
    "array_has_any(l, [NULL])": "FTFNFT",
    "array_has_any(l, [])": "FFFFFF",
    "array_has_any(l, NULL)": "NNNNNN",
    "array_has_all(l, [1, 2])": "TFFNFF",
    "array_has_all(l, [1, 1])": "TFFNTF",
    "array_has_all(l, [2, NULL])": "FTFNFF",
    "array_has_all(l, [])": "TTTTTT",
}
_NEGATED = str.maketrans("TF", "FT")


def results(text: str, batch: pa.RecordBatch = BATCH) -> str:
    predicate = pickle.loads(pickle.dumps(parse_predicate(text, SCHEMA)))
    values = predicate.evaluate(batch).to_pylist()
    return "".join({True: "T", False: "F", None: "N"}[value] for value in values)


@pytest.mark.parametrize("text", RESULTS)
@pytest.mark.parametrize("column", ["l", "big"])
def test_results(text: str, column: str) -> None:
    text, expected = (
        text.replace("(l,", f"({column},").replace(", l)", f", {column})"),
        RESULTS[text],
    )
    assert results(text) == expected
    assert results(f"NOT {text}") == expected.translate(_NEGATED)
    assert results(text, BATCH.slice(1, 4)) == expected[1:5]
    assert results(text, BATCH.slice(0, 0)) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("array_contains(fixed, 0)", "FNTNFN"),
        ("array_contains(fixed, CAST('NaN' AS FLOAT))", "FNFNTN"),
        ("array_has(fixed, 1)", "TFFNTF"),
        ("arrays_overlap(s, array('a'))", "TNFNTN"),
        ("array_has_all(s, ['a', 'b'])", "TFFNFF"),
        ("array_contains(codes, 'b')", "TTFNFN"),
        ("array_has(s, 'A')", "FFFNFF"),
    ],
)
def test_other_items(text: str, expected: str) -> None:
    assert results(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("array_contains(l, NULL)", "does not take NULL"),
        ("array_contains(l, '1')", "not searched for string"),
        ("array_contains(s, 1)", "not searched for int"),
        ("array_contains(l, i)", "only for literals"),
        ("array_contains(i, 1)", "is not a list"),
        ("array_contains(nested, 1)", "not supported"),
        ("array_contains(l)", "wrong number of arguments"),
        ("arrays_overlap(l, NULL)", "takes an array of literals"),
        ("arrays_overlap(l, 1)", "takes an array of literals"),
        ("arrays_overlap(l, array(1.0))", "does not compare int with decimal"),
        ("array_contains(array(1), 1)", "the function array is not supported"),
        ("array_contains([1], 1)", "the function array is not supported"),
        ("array_has_any(l, [1, i])", "only for literals"),
        ("array_has_any(l, [1, )", "expected"),
        ("array_has_any(l, [1", "expected ]"),
        ("[1] = [1]", "the function array is not supported"),
    ],
)
def test_refusals(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason.replace("[", r"\[")):
        parse_predicate(text, SCHEMA)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("array_contains(l, 1)", ("has_any", [1])),
        ("array_has(l, 1)", ("has_any", [1])),
        ("arrays_overlap(l, array(1, 2, NULL))", ("has_any", [1, 2])),
        ("array_has_any(l, [3, 2])", ("has_any", [3, 2])),
        ("array_has_all(l, [1, 2, 1])", ("has_all", [1, 2])),
        ("array_has_all(l, [1, NULL])", ("has_any", [1])),
        ("array_has_any(l, [1, NULL])", None),
        ("NOT array_contains(l, 1)", None),
        ("array_contains(fixed, CAST('NaN' AS FLOAT))", None),
    ],
)
def test_questions_to_an_index(text: str, question: tuple[str, list[int]] | None) -> None:
    questions: list[tuple[str, Any]] = []

    def statistics(field: Field, op: str, value: Any) -> RowRanges:
        questions.append((op, value.to_pylist()))
        return RowRanges.of([range(2)])

    rows = parse_predicate(text, SCHEMA).candidates(statistics)
    assert questions == ([] if question is None else [question])
    assert (rows is None) is (question is None)


def test_random_lists_beside_a_loop() -> None:
    rng = np.random.default_rng(2)
    values = [
        None if rng.random() < 0.1 else [None if x == 0 else int(x) for x in rng.integers(0, 5, n)]
        for n in rng.integers(0, 4, 500)
    ]
    batch = pa.record_batch({"l": pa.array(values, TYPES["l"])})
    expected = "".join(
        "N" if row is None else "T" if 3 in row else "N" if None in row else "F" for row in values
    )
    assert results("array_contains(l, 3)", batch) == expected
