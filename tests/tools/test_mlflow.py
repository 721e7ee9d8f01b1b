"""MLflow: models that score tables as Spark jobs, and models of pyspark.ml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import mlflow
import pandas as pd
import pytest

from tests.support.pages import run_page
from tests.tools.results import PAGE


class Twice(mlflow.pyfunc.PythonModel):
    """A model that returns twice the first column."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> Any:
        return model_input.iloc[:, 0] * 2


@pytest.fixture(scope="module")
def points(spark: Any) -> Any:
    """A table with a number and a vector."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.models")
    rows = [(i, float(i), [i % 2.0, float(i)]) for i in range(6)]
    frame = spark.createDataFrame(rows, "id long, x double, v array<float>")
    size = "v.arrow.fixed-size-list.size"
    frame.writeTo("lance.models.points").tableProperty(size, "2").create()
    return spark.table("lance.models.points")


def opened(folder: Path, name: str) -> lance.LanceDataset:
    """Open a table by pylance, which validates it."""
    (path,) = (folder / "lake").glob(f"*_models${name}")
    dataset = lance.dataset(str(path))
    dataset.validate()
    return dataset


def test_page(spark: Any, folder: Path) -> None:
    """The lines above: a model scores the rows of a table."""
    run_page(PAGE, {"spark": spark}, folder, tool="mlflow")


def test_scores(spark: Any, folder: Path, points: Any) -> None:
    """`mlflow.pyfunc.spark_udf` scores a table; the scores are merged into it."""
    mlflow.pyfunc.save_model(str(folder / "twice"), python_model=Twice(), pip_requirements=[])
    model = str(folder / "twice")
    twice = mlflow.pyfunc.spark_udf(spark, model, result_type="double", env_manager="local")
    points.select("id", twice("x").alias("x")).createOrReplaceTempView("scores")
    points.writeTo("lance.models.scored").create()
    spark.sql(
        "MERGE INTO lance.models.scored t USING scores s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET x = s.x"
    )
    table = opened(folder, "scored").to_table().sort_by("id")
    assert table["x"].to_pylist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_models_of_pyspark(folder: Path, points: Any) -> None:
    """`mlflow.spark.save_model` and `load_model` of a model fitted on a column of vectors."""
    from pyspark.ml.clustering import KMeans
    from pyspark.ml.functions import array_to_vector

    features = points.withColumn("features", array_to_vector("v"))
    model = KMeans(k=2, seed=1, maxIter=2).fit(features)
    mlflow.spark.save_model(model, str(folder / "clusters"), pip_requirements=["pyspark"])
    loaded = mlflow.spark.load_model(str(folder / "clusters"), dfs_tmpdir=str(folder / "tmp"))
    assert (
        loaded.transform(features).orderBy("id").collect()
        == model.transform(features).orderBy("id").collect()
    )
