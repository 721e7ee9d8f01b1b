"""The functions of vectors, beside Spark's own functions where it has them, and numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import functions as sf

from tests.support.spark.versions import SPARK

#: Spark's function with the same value, or with 1 - the value.
BUILT_IN = {
    "l2_distance": "vector_l2_distance(a, b)",
    "cosine_distance": "1 - vector_cosine_similarity(a, b)",
    "dot_product": "vector_inner_product(a, b)",
    "l2_normalize": "vector_normalize(a)",
}


@pytest.fixture(autouse=True)
def enabled(spark: Any, pushdown: Callable[..., None]) -> None:
    pushdown(True, False)


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def vectors(num_rows: int) -> list[tuple[int, Any, Any]]:
    """Return rows of two vectors: null, empty, with null items, with zeros, and others."""
    rng = np.random.default_rng(5)
    rows: list[tuple[int, Any, Any]] = [
        (0, None, [1.0]),
        (1, [1.0], None),
        (2, [], []),
        (3, [1.0, None], [1.0, 2.0]),
        (4, [1.0, 2.0], [None, 2.0]),
        (5, [0.0, 0.0], [1.0, 2.0]),
        (6, [1.0, 2.0], [0.0, 0.0]),
        (7, [math.nan, 2.0], [1.0, 2.0]),
        (8, [math.inf, 2.0], [1.0, 2.0]),
    ]
    for number in range(9, num_rows):
        pair = rng.normal(size=(2, int(rng.integers(1, 70)))).astype(np.float32)
        rows.append((number, pair[0].tolist(), pair[1].tolist()))
    return rows


def assert_close(actual: list[Any], expected: list[Any], tolerance: float) -> None:
    def items(value: Any) -> list[float] | None:
        return None if value is None else np.atleast_1d(value).tolist()

    for left, right in zip(map(items, actual), map(items, expected), strict=True):
        assert (left is None) == (right is None), (left, right)
        if left is not None:
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)


@pytest.mark.sample(5)
@pytest.mark.skipif(SPARK < (4, 2), reason="Spark 4.2 is the first with such functions")
@pytest.mark.parametrize("codegen", ["CODEGEN_ONLY", "NO_CODEGEN"])
@pytest.mark.parametrize("function", list(BUILT_IN))
def test_functions_beside_those_of_spark(spark: Any, function: str, codegen: str) -> None:
    frame = spark.createDataFrame(vectors(60), "id INT, a ARRAY<FLOAT>, b ARRAY<FLOAT>").cache()
    arguments = "a" if function == "l2_normalize" else "a, b"
    with setting(spark, "spark.sql.codegen.factoryMode", codegen):
        row = frame.orderBy("id").select(
            sf.collect_list(sf.struct(sf.expr(f"{function}({arguments})").alias("x"))),
            sf.collect_list(sf.struct(sf.expr(BUILT_IN[function]).alias("x"))),
        )
        ours, theirs = ([item.x for item in items] for items in row.first())
    # The empty vector has no length: Spark normalizes it to itself.
    skipped = {2} if function == "l2_normalize" else set()
    actual, expected = (
        [value for number, value in enumerate(values) if number not in skipped]
        for values in (ours, theirs)
    )
    assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize(
    ("left", "right"), [("DOUBLE", "DOUBLE"), ("FLOAT", "DOUBLE"), ("DOUBLE", "FLOAT")]
)
def test_functions_of_doubles(spark: Any, left: str, right: str) -> None:
    rows = vectors(40)[9:]
    frame = spark.createDataFrame(rows, f"id INT, a ARRAY<{left}>, b ARRAY<{right}>")
    frame = frame.selectExpr(
        "l2_distance(a, b) d", "cosine_distance(a, b) c", "dot_product(a, b) p"
    )
    for (_, a, b), row in zip(rows, frame.collect(), strict=True):
        product, lengths = np.dot(a, b), np.linalg.norm(a) * np.linalg.norm(b)
        expected = [np.linalg.norm(np.subtract(a, b)), 1 - product / lengths, product]
        np.testing.assert_allclose(list(row), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "expected", "dtype"),
    [
        ("l2_distance(array(1, 2), array(4, 6))", 5.0, "double"),
        ("l2_distance(array(0.1F), array(0.1))", 0.0, "double"),
        ("l2_distance(array(0.1F), array(0.1D))", 1.4901161138336505e-09, "double"),
        ("dot_product(array(2L), array(CAST(1.5 AS DECIMAL(9, 2))))", 3.0, "double"),
        ("cosine_distance(array(1, 0), array(0, 3))", 1.0, "double"),
        ("cosine_distance(array(), array())", None, "double"),
        ("l2_normalize(array(3F, 4F))", [np.float32(0.6), np.float32(0.8)], "array<float>"),
        ("l2_normalize(array(3, 4))", [0.6, 0.8], "array<double>"),
        ("l2_normalize(NULL)", None, "array<double>"),
        ("l2_distance(NULL, array(1))", None, "double"),
    ],
)
def test_types_of_arguments(spark: Any, call: str, expected: Any, dtype: str) -> None:
    for ansi in ("true", "false"):
        with setting(spark, "spark.sql.ansi.enabled", ansi):
            frame = spark.sql(f"SELECT {call}")
            assert frame.first()[0] == expected
            assert frame.dtypes[0][1] == dtype


@pytest.mark.parametrize(
    ("call", "condition", "text"),
    [
        ("l2_distance(array(1))", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "requires 2 parameters"),
        ("l2_normalize()", "WRONG_NUM_ARGS.WITHOUT_SUGGESTION", "requires 1 parameters"),
        (
            "dot_product(array(1), 'x')",
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            'The second parameter requires the "ARRAY" of numbers type, however "x" has the type',
        ),
        (
            "l2_normalize(array(array(1)))",
            "DATATYPE_MISMATCH.UNEXPECTED_INPUT_TYPE",
            'has the type "ARRAY<ARRAY<INT>>"',
        ),
    ],
)
def test_wrong_arguments(spark: Any, call: str, condition: str, text: str) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.sql(f"SELECT {call}")
    assert caught.value.getCondition() == condition
    assert text in str(caught.value)


def test_vectors_of_other_lengths(spark: Any) -> None:
    text = "l2_distance: the vectors have 1 and 2 items; both must have the same number"
    with pytest.raises(IllegalArgumentException, match=text):
        spark.sql("SELECT l2_distance(array(1), array(1, 2))").collect()


def test_names_and_places(spark: Any) -> None:
    frame = spark.sql("SELECT 1 AS id, array(3F, 4F) AS v, array(0F, 0F) AS w")
    frame.createOrReplaceTempView("pairs")
    assert frame.select(sf.call_function("l2_distance", "v", "w")).columns == ["l2_distance(v, w)"]
    for query in (
        "SELECT max(l2_distance(v, w)) FROM pairs",
        "SELECT l2_distance(v, w) FROM pairs GROUP BY l2_distance(v, w)",
        "SELECT sum(id) OVER (ORDER BY l2_distance(v, w)) * 5 FROM pairs WHERE dot_product(v, w) = 0",
        "SELECT transform(array(w), x -> l2_distance(v, x))[0] FROM pairs",
    ):
        assert spark.sql(query).first()[0] == 5.0, query
    spark.catalog.dropTempView("pairs")


def test_functions_of_a_user_are_kept(spark: Any) -> None:
    import lance_spark

    session = spark.newSession()
    session.udf.register("dot_product", lambda left, right: "mine")
    lance_spark.enable(session)
    query = "SELECT dot_product(array(1), array(2)), l2_distance(array(1), array(2))"
    assert tuple(session.sql(query).first()) == ("mine", 1.0)
    session.udf.register("l2_distance", lambda left, right: "mine too")
    lance_spark.enable(session)
    assert tuple(session.sql(query).first()) == ("mine", "mine too")
    assert spark.sql(query).first()[0] == 2.0
