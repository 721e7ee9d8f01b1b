"""CALL: procedures of the catalog, with and without Spark jobs."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import numpy as np
import pytest
from py4j.protocol import INPUT_CONVERTER
from pyspark import java_gateway
from pyspark.errors import AnalysisException

from lance_spark.spark.catalog.procedures import attached_session
from lance_spark.spark.jvm import startup
from lance_spark.spark.jvm.shims import pyspark_names

NAME = "procedures"


def call(spark: Any, text: str) -> list[Any]:
    rows: list[Any] = spark.sql(f"CALL {NAME}.system.{text}").collect()
    return rows


def create(spark: Any, name: str) -> None:
    spark.sql(f"CREATE TABLE {NAME}.{name} (id BIGINT, s STRING)")
    for start in (0, 10, 20):
        spark.range(start, start + 10).selectExpr("id", "'a' AS s").coalesce(1).writeTo(
            f"{NAME}.{name}"
        ).append()


def test_history_tags_and_restore(spark: Any, root: Path) -> None:
    create(spark, "versions")
    history = call(spark, "history('versions')")
    assert [(row.version, row.num_rows) for row in history] == [(4, 30), (3, 20), (2, 10), (1, 0)]
    assert len(call(spark, "history(table => 'versions', limit => 2)")) == 2
    assert call(spark, "create_tag(table => 'versions', name => 'small', version => 2)") == [
        ("small",)
    ]
    dataset = lance.dataset(str(root / "versions.lance"))
    assert dataset.tags.list()["small"]["version"] == 2
    (tag,) = call(spark, "tags('versions')")
    assert (tag.name, tag.version) == ("small", 2)
    assert call(spark, "restore_to_tag('versions', 'small')") == [(5,)]
    assert lance.dataset(str(root / "versions.lance")).count_rows() == 10
    call(spark, "delete_tag('versions', 'small')")
    assert not dataset.tags.list()


def test_jobs_run_in_the_session_of_the_statement(spark: Any, root: Path) -> None:
    create(spark, "jobs")
    path = str(root / "jobs.lance")
    (result,) = call(spark, f"optimize('{NAME}.jobs')")
    assert (result.fragments_removed, result.fragments_added) == (3, 1)
    assert len(lance.dataset(path).get_fragments()) == 1
    spark.sql("SELECT id, id * 2 AS twice FROM range(30)").createOrReplaceTempView("more")
    try:
        call(spark, "add_columns_from(table => 'jobs', source => 'more', key => array('id'))")
    finally:
        spark.catalog.dropTempView("more")
    rows = lance.dataset(path).to_table().to_pylist()
    assert all(row["twice"] == 2 * row["id"] for row in rows)
    (deleted,) = call(spark, "delete('jobs', 'id < 5')")
    assert deleted.num_deleted_rows == 5
    # The table can be named by its path, too.
    assert call(spark, f"validate('{path}')")


def test_calls_at_the_same_time(spark: Any, root: Path) -> None:
    names = [f"together{number}" for number in range(3)]
    for name in names:
        create(spark, name)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda name: call(spark, f"optimize('{name}')"), names))
    assert [(row.fragments_removed, row.fragments_added) for (row,) in results] == [(3, 1)] * 3
    # The session of this process is as it was.
    assert spark.range(3).count() == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nope('errors')", "procedure system.nope was not found"),
        ("history('nothere')", "table nothere was not found"),
        ("delete_tag('errors', 'nope')", "tag 'nope' not found"),
        ("optimize(table => 'errors', nope => 1)", "nope"),
        ("alter_column('errors', 'id', data_type => 'nope')", "'nope' is not a type: .+"),
    ],
)
def test_errors_have_one_sentence(spark: Any, root: Path, text: str, message: str) -> None:
    if not (root / "errors.lance").exists():
        spark.sql(f"CREATE TABLE {NAME}.errors (id BIGINT)")
    with pytest.raises(AnalysisException, match=message) as caught:
        call(spark, text)
    assert "Traceback" not in str(caught.value)


def test_errors_of_spark_in_a_procedure_have_a_condition(spark: Any, root: Path) -> None:
    spark.sql(f"CREATE TABLE {NAME}.words AS SELECT 1L AS id, 'x' AS word")
    with pytest.raises(AnalysisException, match="CAST_INVALID_INPUT") as caught:
        call(spark, "delete('words', 'cast(word AS INT) = id')")
    assert caught.value.getCondition() == "LANCE_ERROR"


def test_a_statement_does_not_wait_for_the_server_of_accumulators(tmp_path: Path) -> None:
    """pyspark's server polls for a second before it ends, which no statement needs."""
    may_end, has_ended = threading.Event(), threading.Event()

    def shutdown() -> None:
        may_end.wait(60)
        has_ended.set()

    folder = tmp_path / "spark"
    folder.mkdir()
    server = SimpleNamespace(shutdown=shutdown)
    attached_session._release(SimpleNamespace(_accumulatorServer=server, _temp_dir=str(folder)))
    assert not has_ended.is_set()
    assert not folder.exists()
    may_end.set()
    assert has_ended.wait(60)


def test_the_arguments_of_a_call_do_not_load_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark's converters for numpy import the modules of its tests, which import pandas."""
    client = SimpleNamespace(converters=INPUT_CONVERTER)
    gateway = SimpleNamespace(_gateway_client=client)
    monkeypatch.setattr(java_gateway, "launch_gateway", lambda: gateway)
    assert pyspark_names.connect_to(1, "s") is gateway

    def converted(value: object) -> bool:
        return any(converter.can_convert(value) for converter in client.converters)

    assert converted(np.int64(1))
    assert converted(np.arange(2))
    assert converted([1])
    # An import of the module fails from here on.
    monkeypatch.setitem(sys.modules, "pyspark.testing.utils", None)
    assert not converted("text")
    assert not converted(1)


def test_tasks_of_a_call_start_as_processes_of_the_format() -> None:
    context = SimpleNamespace(environment={"PYTHONPATH": "own"})
    properties = {startup.PROPERTY: "folder"}
    system = SimpleNamespace(getProperty=properties.get)
    gateway = SimpleNamespace(
        jvm=SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
    )
    attached_session._set_startup(gateway, context)
    assert context.environment == {"PYTHONPATH": f"own{os.pathsep}folder"}
