"""The pandas API on Spark: tables by name, tables of the catalog of the session, and paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pytest

from tests.support.pages import run_page
from tests.support.spark.versions import SPARK
from tests.tools.results import PAGE

FLIGHTS = pd.DataFrame({"id": [1, 2, 3], "carrier": ["UA", "DL", "UA"], "delay": [62.5, -3.0, 4.0]})


@pytest.fixture(scope="module")
def ps(spark: Any) -> Any:
    if SPARK < (4, 1):
        spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.air")
    import pyspark.pandas as ps

    return ps


def opened(folder: Path, name: str) -> lance.LanceDataset:
    """Open a table by pylance, which validates it."""
    paths = [*folder.glob(f"*/*_air${name}"), *folder.glob(f"*/{name}"), *folder.glob(name)]
    dataset = lance.dataset(str(paths[0]))
    dataset.validate()
    return dataset


def test_page(spark: Any, folder: Path, ps: Any) -> None:
    """The lines above: a table by name with its index, an older version, a path."""
    run_page(PAGE, {"spark": spark}, folder, tool="pandas_on_spark")


def test_tables_by_name(folder: Path, ps: Any) -> None:
    """`to_table` and `read_table` by the name of a catalog, which append and overwrite; versions stay."""
    frame = ps.from_pandas(FLIGHTS)
    frame.to_table("lance.air.named")
    frame.to_table("lance.air.named", mode="append")
    read = ps.read_table("lance.air.named")
    assert read.groupby("carrier").delay.sum().sort_index().to_dict() == {"DL": -6.0, "UA": 133.0}
    assert sorted(read.query("delay > 5").id.to_numpy()) == [1, 1]
    frame.head(1).to_table("lance.air.named", mode="overwrite")
    table = opened(folder, "named")
    assert (table.count_rows(), table.checkout_version(2).count_rows()) == (1, 6)


def test_session_catalog(folder: Path, ps: Any) -> None:
    """Tables of Spark's own catalog, with `format="lance"`, joined with others."""
    ps.from_pandas(FLIGHTS).to_table("own", format="lance")
    ps.from_pandas(FLIGHTS).to_table("own", format="lance", mode="overwrite")
    assert opened(folder, "own").version == 2
    ps.DataFrame({"code": ["UA"], "name": ["United"]}).to_table("lance.air.carriers")
    joined = ps.read_table("own").merge(
        ps.read_table("lance.air.carriers"), left_on="carrier", right_on="code"
    )
    assert sorted(joined.id.to_numpy()) == [1, 3]


def test_paths(folder: Path, ps: Any) -> None:
    """`spark.to_spark_io` and `read_spark_io` by path, with options such as `version`."""
    path = str(folder / "by_path.lance")
    ps.from_pandas(FLIGHTS).spark.to_spark_io(path, format="lance")
    ps.from_pandas(FLIGHTS).spark.to_spark_io(path, format="lance", mode="append")
    assert len(ps.read_spark_io(path, format="lance")) == 6
    assert len(ps.read_spark_io(path, format="lance", version=1)) == 3
    assert opened(folder, "by_path.lance").count_rows() == 6


def test_indexes_of_frames(folder: Path, ps: Any) -> None:
    """`index_col`: an index of one or several levels is columns of the table."""
    ps.from_pandas(FLIGHTS.set_index("id")).to_table("lance.air.keyed", index_col="id")
    assert ps.read_table("lance.air.keyed", index_col="id").loc[3, "delay"] == 4.0
    levels = FLIGHTS.set_index(["carrier", "id"])
    ps.from_pandas(levels).to_table("lance.air.levels", index_col=["carrier", "id"])
    assert opened(folder, "levels").schema.names == ["carrier", "id", "delay"]
    read = ps.read_table("lance.air.levels", index_col=["carrier", "id"])
    pd.testing.assert_frame_equal(read.sort_index().to_pandas(), levels.sort_index())


def test_a_table_is_replaced_by_itself(folder: Path, ps: Any) -> None:
    """A table is overwritten by a frame that reads it."""
    ps.from_pandas(FLIGHTS).to_table("lance.air.itself")
    frame = ps.read_table("lance.air.itself")
    frame.assign(late=frame.delay > 0).to_table("lance.air.itself", mode="overwrite")
    assert sorted(opened(folder, "itself").to_table()["late"].to_pylist()) == [False, True, True]


def test_types(folder: Path, ps: Any) -> None:
    """Nullable integers, strings and booleans, categories, times and lists."""
    frame = pd.DataFrame(
        {
            "n": pd.array([1, None], "Int64"),
            "s": pd.array(["x", None], "string"),
            "b": pd.array([True, None], "boolean"),
            "t": pd.to_datetime(["2026-01-01", "2026-01-02"]),
            "v": [[1.0, 2.0], [3.0]],
        }
    )
    ps.from_pandas(frame).to_table("lance.air.typed")
    assert opened(folder, "typed").to_table(["n", "s", "b", "v"]).sort_by("b").to_pylist() == [
        {"n": 1, "s": "x", "b": True, "v": [1.0, 2.0]},
        {"n": None, "s": None, "b": None, "v": [3.0]},
    ]
    read = ps.read_table("lance.air.typed").to_pandas().sort_values("t")
    assert list(read.t) == list(frame.t)


def test_partitions(folder: Path, ps: Any) -> None:
    """`partition_cols`."""
    with pytest.raises(Exception, match="Lance tables have no partitions"):
        ps.from_pandas(FLIGHTS).to_table("lance.air.parted", partition_cols="carrier")
    pytest.xfail("Lance tables have no partitions: leave `partition_cols` out")
