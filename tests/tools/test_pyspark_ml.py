"""pyspark.ml: pipelines on columns of vectors, and columns of its own types."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql import functions as sf

from lance_spark.spark.table import LanceTable
from tests.support.pages import run_page
from tests.tools.results import PAGE


@pytest.fixture(scope="module")
def points(spark: Any) -> Any:
    """A table with a column of vectors of two dimensions, and what it should be learned to say."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.ml")
    rows = [(i, "ab"[i % 2], [i % 5.0, i % 3.0], i % 2.0) for i in range(40)]
    frame = spark.createDataFrame(rows, "id long, kind string, v array<float>, label double")
    writer = frame.writeTo("lance.ml.points").tableProperty("v.arrow.fixed-size-list.size", "2")
    writer.create()
    return spark.table("lance.ml.points")


@pytest.fixture(scope="module")
def scored(spark: Any, points: Any) -> Any:
    """A table with the columns of a fitted model: vectors of `pyspark.ml.linalg`."""
    frame = fitted(points).transform(with_features(points))
    frame.writeTo("lance.ml.scored").create()
    return frame


def with_features(points: Any) -> Any:
    from pyspark.ml.functions import array_to_vector

    return points.withColumn("embedding", array_to_vector("v"))


def fitted(points: Any) -> Any:
    from pyspark.ml import Pipeline
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.feature import StringIndexer, VectorAssembler

    stages = [
        StringIndexer(inputCol="kind", outputCol="number"),
        VectorAssembler(inputCols=["number", "embedding"], outputCol="features"),
        LogisticRegression(maxIter=3),
    ]
    return Pipeline(stages=stages).fit(with_features(points))


def opened(folder: Path, name: str) -> lance.LanceDataset:
    """Open a table by pylance, which validates it."""
    (path,) = [*(folder / "lake").glob(f"*_ml${name}"), *(folder / "warehouse").glob(name)]
    dataset = lance.dataset(str(path))
    dataset.validate()
    return dataset


def test_page(spark: Any, folder: Path) -> None:
    """The lines above: a model is fitted on vectors, saved and applied, and its vectors are stored."""
    run_page(PAGE, {"spark": spark}, folder, tool="pyspark_ml")


def test_saved_pipelines(folder: Path, points: Any) -> None:
    """Pipelines fitted on a column of vectors (`array_to_vector`), saved, loaded, and applied."""
    from pyspark.ml import PipelineModel

    model = fitted(points)
    model.write().overwrite().save(str(folder / "model"))
    loaded = PipelineModel.load(str(folder / "model")).transform(with_features(points))
    expected = model.transform(with_features(points)).orderBy("id").collect()
    assert loaded.orderBy("id").collect() == expected


def test_stored_vectors(spark: Any, folder: Path, scored: Any) -> None:
    """Columns of `VectorUDT` are written and read as they are, dense and sparse, and fit models."""
    from pyspark.ml.classification import LogisticRegression

    read = spark.table("lance.ml.scored")
    assert read.schema["features"].dataType == scored.schema["features"].dataType
    assert read.orderBy("id").collect() == scored.orderBy("id").collect()
    stored = opened(folder, "scored").schema.field("features").type
    assert stored.field("values").type.value_type == pa.float64()
    LogisticRegression(maxIter=1).fit(read.select("features", "label"))
    few = read.where("prediction = 1 AND id < 5").select("id", "probability")
    assert [row.id for row in few.orderBy("id").collect()] == [1, 3]


def test_changes(spark: Any, folder: Path, scored: Any) -> None:
    """Rows with such columns are appended, merged (SQL and `LanceTable`), updated and deleted."""
    scored.writeTo("lance.ml.changed").create()
    scored.where("id < 3").selectExpr("*").writeTo("lance.ml.changed").append()
    scored.createOrReplaceTempView("scored")
    spark.sql("DELETE FROM lance.ml.changed WHERE id < 3")
    merge = "MERGE INTO lance.ml.changed t USING scored s ON t.id = s.id "
    spark.sql(merge + "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    spark.sql("UPDATE lance.ml.changed SET label = 7 WHERE id = 1")
    table = LanceTable.forName(spark, "lance.ml.changed")
    merged = table.alias("t").merge(scored.alias("s"), "t.id = s.id")
    merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
    read = spark.table("lance.ml.changed").orderBy("id").collect()
    assert read == scored.orderBy("id").collect()
    assert opened(folder, "changed").count_rows() == 40


def test_other_values(spark: Any, folder: Path, points: Any) -> None:
    """Matrices, arrays of vectors, sparse vectors and nulls."""
    from pyspark.ml.linalg import Matrices, Vectors

    dense, sparse = Vectors.dense([1.0, 2.0]), Vectors.sparse(4, [1], [2.0])
    rows = [
        (1, dense, Matrices.dense(2, 1, [1, 2]), [dense, sparse]),
        (2, sparse, Matrices.sparse(2, 1, [0, 1], [1], [3.0]), [None]),
    ]
    frame = spark.createDataFrame(rows, ["id", "vector", "matrix", "vectors"])
    frame = frame.union(spark.createDataFrame([(3, None, None, None)], frame.schema))
    frame.writeTo("lance.ml.others").create()
    read = spark.table("lance.ml.others")
    assert read.schema == frame.schema
    assert read.orderBy("id").collect() == frame.orderBy("id").collect()
    assert opened(folder, "others").count_rows() == 3


def test_session_catalog(spark: Any, scored: Any) -> None:
    """Such columns in tables of Spark's own catalog, and by path."""
    scored.write.format("lance").saveAsTable("scored_here")
    assert spark.table("scored_here").orderBy("id").collect() == scored.orderBy("id").collect()
    spark.sql("CREATE TABLE some USING lance AS SELECT id, features FROM scored_here WHERE id < 2")
    assert spark.table("some").schema["features"].dataType == scored.schema["features"].dataType


def test_factors(spark: Any, folder: Path, points: Any) -> None:
    """Factors of `ALS`, arrays of floats, become a column of vectors with a vector index."""
    from pyspark.ml.recommendation import ALS

    ratings = [(i % 5, i % 7, float(i % 3)) for i in range(40)]
    frame = spark.createDataFrame(ratings, "user int, item int, rating float")
    model = ALS(rank=4, maxIter=1, userCol="user", itemCol="item", ratingCol="rating").fit(frame)
    size = "features.arrow.fixed-size-list.size"
    model.itemFactors.writeTo("lance.ml.factors").tableProperty(size, "4").create()
    index = "'ml.factors', 'nearest', 'IVF_FLAT', array('features')"
    spark.sql(f"CALL lance.system.create_index({index})")
    assert opened(folder, "factors").schema.field("features").type == pa.list_(pa.float32(), 4)


def test_arrays(points: Any) -> None:
    """Estimators take a column of vectors as it is (`featuresCol="v"`)."""
    from pyspark.errors import IllegalArgumentException
    from pyspark.ml.clustering import KMeans

    with pytest.raises(IllegalArgumentException, match="Column v must be of type"):
        KMeans(k=2, featuresCol="v", maxIter=1).fit(points)
    pytest.xfail(
        "Spark's estimators refuse arrays whose items may be null, also of Parquet: use "
        "`array_to_vector`"
    )


def test_models_in_rows(spark: Any, folder: Path, points: Any) -> None:
    """Models as bytes in a column, one a row, that a function of a job loads."""
    model = pickle.dumps({"weights": [2.0, 3.0]})
    spark.createDataFrame([("first", model)], "name string, model binary").writeTo(
        "lance.ml.models"
    ).create()
    models = spark.table("lance.ml.models")

    def apply(model: bytes, v: list[float]) -> float:
        weights = pickle.loads(model)["weights"]
        return sum(weight * item for weight, item in zip(weights, v, strict=True))

    result = points.where("id = 2").crossJoin(models).select(sf.udf(apply, "double")("model", "v"))
    assert result.first()[0] == 2 * 2.0 + 3 * 2.0
    assert opened(folder, "models").to_table()["model"].to_pylist() == [model]
