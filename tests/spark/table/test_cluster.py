"""Methods of `LanceTable` on a local cluster, also with slow and failing tasks.

All of them and two million rows in `make test-long`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lance_spark.dataset.write import write_dataset
from tests.spark.table.tables import FRAGMENTS, checked, copied, large_rows
from tests.support.cells import number_of
from tests.support.spark.processes import JAVA_OPTIONS, ROOT, WORKERS, environment, make_home
from tests.support.spark.settings import INTERPRETED

ROWS = number_of(60_000, 2_000_000)
SMALL = 50_000
#: Parts of `cluster_run.py` for `make test`: those that use executors in different ways. Statements
#: change rows as methods do, and executors of `tests/spark/kills` update, write and merge. No part is
#: left out with more rows.
PARTS = ("maintenance", "statements", "streams", "failed", "columnar", "speculated")
ALL_PARTS = ROWS > 60_000
SUBMIT = Path(sys.executable).with_name("spark-submit")
SCRIPT = Path(__file__).with_name("cluster_run.py")

pytestmark = [
    pytest.mark.skipif(not SUBMIT.exists(), reason=f"no spark-submit beside {sys.executable}"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc and 127.0.0.2"),
]


@dataclass(frozen=True)
class Cluster:
    """The results of a run: its folder, its results as JSON, and the rows of the tables before
    it.
    """

    folder: Path
    results: dict[str, Any]
    rows: pa.Table
    small: pa.Table


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    folder = tmp_path_factory.mktemp("cluster")
    rows, small = large_rows(ROWS), large_rows(SMALL)
    key = pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"})
    keyed = rows.cast(rows.schema.set(0, key))
    write_dataset(keyed, str(folder / "t.lance"), max_rows_per_file=ROWS // FRAGMENTS)
    write_dataset(small, str(folder / "failed.lance"), max_rows_per_file=SMALL // FRAGMENTS)
    copied(folder / "failed.lance", folder / "slow.lance")
    plain = rows.drop_columns("ts")
    lists = plain["vector"].cast(pa.list_(pa.float32()))
    pq.write_table(
        plain.set_column(plain.schema.get_field_index("vector"), "vector", lists),
        folder / "rows.parquet",
    )
    home = make_home(folder / "home")
    path = os.pathsep.join(map(str, (WORKERS, ROOT)))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "2",
        **INTERPRETED,
        "spark.task.maxFailures": "2",
        "spark.executorEnv.PYTHONPATH": path,
        "spark.executorEnv.PYSPARK_PYTHON": sys.executable,
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(SUBMIT), "--master", "local-cluster[2,1,1024]", *confs, str(SCRIPT), str(folder)]
    command += [] if ALL_PARTS else PARTS
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment(
            PYTHONPATH=path, SPARK_HOME=str(home), SPARK_LOCAL_DIRS=str(folder / "local")
        ),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[ran.stderr.find("Traceback") :][:6000]
    executors = {path.parent.name for path in home.glob("work/*/*/stderr")}
    assert len(executors) >= 2
    return Cluster(folder, json.loads((folder / "told.json").read_text()), rows, small)


def nanoseconds(ids: np.ndarray) -> np.ndarray:
    """Return the times of rows by id, for the first rows and for rows that Spark wrote."""
    return np.where(ids < ROWS, ids * 1_000_000_007 + 1, ids * 1000)


def test_every_method_agrees_with_plain_spark(cluster: Cluster) -> None:
    steps = cluster.results["steps"]
    assert len(steps) >= (15 if ALL_PARTS else 10)
    for name, step in steps.items():
        dataset = lance.dataset(cluster.folder / step["table"], version=step["version"])
        dataset.validate()
        wanted = pq.read_table(cluster.folder / "expected" / name).sort_by("id")
        table = dataset.to_table().sort_by("id")
        ids = wanted["id"].to_numpy()
        assert len(np.unique(ids)) == len(ids) > 0, name
        if "ts" in table.column_names:
            stored_times = table["ts"].cast(pa.int64()).to_numpy()
            scale = 1 if table.schema.field("ts").type.unit == "ns" else 1000
            expected_times = nanoseconds(ids) if name != "overwrite" else ids * 1000
            np.testing.assert_array_equal(stored_times * scale, expected_times, name)
        assert set(table.column_names) - {"ts"} == set(wanted.column_names), name
        for column in wanted.column_names:
            column_values, want = table[column], wanted[column].combine_chunks()
            assert column_values.cast(want.type).combine_chunks().equals(want), (name, column)
    assert lance.dataset(cluster.folder / "t.lance").tags.list().keys() == {"sorted"}
    copy = lance.dataset(cluster.folder / "copy.lance")
    assert [version["version"] for version in copy.versions()] == [copy.version]
    checked(cluster.folder / "t.lance")
    checked(cluster.folder / "copy.lance")


def test_fewer_fragments_in_order(cluster: Cluster) -> None:
    steps = cluster.results["steps"]

    def version(name: str) -> lance.LanceDataset:
        return lance.dataset(cluster.folder / "t.lance", version=steps[name]["version"])

    before = lance.dataset(cluster.folder / "t.lance", version=1)
    if ALL_PARTS:
        before = version("update columns")
    after = version("optimize")
    assert len(after.get_fragments()) < len(before.get_fragments())
    assert all(fragment.deletion_file() is None for fragment in after.get_fragments())
    groups = version("optimize with sort_by").to_table(["g"])["g"]
    # Nulls come first.
    order = groups.fill_null(-1).to_numpy()
    assert (np.diff(order) >= 0).all()
    # A sample chooses the ranges: a range with more rows than the target becomes two fragments.
    clustered = version("optimize with z_order_by").get_fragments()
    assert len(after.get_fragments()) <= len(clustered) <= 1.5 * len(after.get_fragments())
    assert cluster.results.get("names", {"files_removed": 0}) == {"files_removed": 0}


@pytest.mark.skipif(not ALL_PARTS, reason="make test reads change feeds in its own session")
def test_change_feed_of_versions(cluster: Cluster) -> None:
    names = ["delete", "delete by a subquery", "update", "update rows"]
    feed = pq.read_table(cluster.folder / "feed")
    before = pq.read_table(cluster.folder / "rows.parquet")
    total = 0
    for name in names:
        version = cluster.results["steps"][name]["version"]
        after = pq.read_table(cluster.folder / "expected" / name)
        for change_type, newer, other_rows in (
            ("insert", after, before),
            ("delete", before, after),
        ):
            wanted = _without(newer, other_rows)
            rows = feed.filter(
                (pc.field("_commit_version") == version) & (pc.field("_change_type") == change_type)
            )
            found_rows = rows.select(newer.column_names).sort_by("id")
            for column in newer.column_names:
                want = wanted[column].combine_chunks()
                assert found_rows[column].cast(want.type).combine_chunks().equals(want), (
                    name,
                    change_type,
                )
            total += rows.num_rows
        before = after
    assert total == feed.num_rows > 0


def _without(rows: pa.Table, other_rows: pa.Table) -> pa.Table:
    """Return the rows of a table that another table does not have, or has with other values."""
    sorted_others = other_rows.sort_by("id")
    rows = rows.sort_by("id")
    positions = pc.index_in(rows["id"], sorted_others["id"])
    unchanged = pc.is_valid(positions)
    matched = sorted_others.take(pc.fill_null(positions, 0))
    for column in ("g", "text"):
        values_here, other_values = rows[column], matched[column]
        equal = pc.fill_null(pc.equal(values_here, other_values), False)
        unchanged = pc.and_(
            unchanged, pc.or_(equal, pc.and_(pc.is_null(values_here), pc.is_null(other_values)))
        )
    values = [_vectors(rows), _vectors(matched)]
    unchanged = pc.and_(
        unchanged, pa.chunked_array([pa.array((values[0] == values[1]).all(axis=1))])
    )
    return rows.filter(pc.invert(unchanged))


def _vectors(table: pa.Table) -> np.ndarray:
    return table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 8)


def test_executors_get_the_classes_of_columns(cluster: Cluster) -> None:
    result, small = cluster.results["columnar"], cluster.small
    assert "columnar=yes" in result["plan"]
    text, total, item, count, squares = result["row"]
    assert (text, total) == (pc.max(small["text"]).as_py(), pc.sum(small["g"]).as_py())
    assert item == pytest.approx(float(_vectors(small)[:, 3].astype(np.float64).sum()))
    assert squares == pytest.approx(float((_vectors(small).astype(np.float64) ** 2).sum()))
    assert count == small.num_rows


def test_a_failed_job_leaves_the_table_unchanged(cluster: Cluster) -> None:
    result = cluster.results["failed"]
    assert re.match(r"StorageError: \S*failed\.lance: the disk is full", result["error"])
    assert result["failed"] >= 1
    dataset = checked(cluster.folder / "failed.lance")
    assert dataset.version == 1
    assert dataset.to_table() == cluster.small


def test_a_speculative_task_leaves_no_files(cluster: Cluster) -> None:
    result = cluster.results["speculated"]
    assert result["slow"]
    assert (result["fragments_removed"], result["fragments_added"]) == (50, 5)
    dataset = checked(cluster.folder / "slow.lance")
    assert dataset.to_table() == cluster.small
