"""Errors of wrong arguments and options name the table and the argument."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import lance_spark
from lance_spark.errors import InvalidInputError, LanceError, PathNotFoundError, TableNotFoundError
from lance_spark.spark.options.read import ReadOptions
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.table import LanceTable
from tests.support.spark.messages import refusal
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import new_table

Table = LanceTable
#: A call, and a word that its error must contain.
CALLS: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda t, s: t.alias(""), "alias"),
    (lambda t, s: t.alias(3), "aliasName"),
    (lambda t, s: t.delete("id ="), "condition"),
    (lambda t, s: t.delete("id = 1", conflict_retries=-1), "conflict_retries"),
    (lambda t, s: t.delete("id = 1", conflict_retries="x"), "conflict_retries"),
    (lambda t, s: t.delete("id = 1", commit_message=3), "commit_message"),
    (lambda t, s: t.delete("id = 1", transaction_properties=["secret"]), "transaction_properties"),
    (lambda t, s: t.delete("id = 1", transaction_properties={"a": 3}), "transaction property 'a'"),
    (lambda t, s: t.delete("coalesce(*) IS NULL"), "condition: * in"),
    (lambda t, s: t.delete(F.isnull(F.coalesce("*"))), "condition: * in"),
    (lambda t, s: t.update(None, {"word": "to_json(struct(*))"}), "set['word']: * in"),
    (lambda t, s: t.add_columns({"n": "hash(*)"}), "* in 'hash(*)'"),
    (lambda t, s: t.replace_where(s, "hash(*) > 0"), "condition: * in"),
    (lambda t, s: merged(t, s, "hash(t.*) <> hash(s.*)", {"word": "s.word"}), "clause: * in"),
    (lambda t, s: merged(t, s, None, {"word": "concat_ws('-', t.*)"}), "word: * in"),
    (lambda t, s: t.update("id = 1", {}), "set"),
    (lambda t, s: t.update("id = 1", 3), "set"),
    (lambda t, s: t.update("id = 1", {"x": "1"}), "'x'"),
    (lambda t, s: t.update("id = 1", {"id": "1"}, mode="x"), "mode"),
    (lambda t, s: t.update_columns({"x": "1"}), "'x'"),
    (lambda t, s: t.add_columns({}), "column"),
    (lambda t, s: t.add_columns({"id": "1"}), "'id'"),
    (lambda t, s: t.add_columns({"n": "1"}, nullable="x"), "nullable"),
    (lambda t, s: t.add_columns_from(s, "x"), "x"),
    (lambda t, s: t.add_columns_from(s, "id", missing="x"), "missing"),
    (lambda t, s: t.drop_columns("x"), "'x'"),
    (lambda t, s: t.rename_column("x", "y"), "'x'"),
    (lambda t, s: t.rename_column("id", "word"), "'word'"),
    (lambda t, s: t.alter_column("x", nullable=True), "'x'"),
    (lambda t, s: t.optimize(target_rows_per_fragment=0), "target_rows_per_fragment"),
    (lambda t, s: t.optimize(conflict_retries=-1), "conflict_retries"),
    (lambda t, s: t.vacuum(-1), "retention"),
    (lambda t, s: t.search(3), "query"),
    (lambda t, s: t.search("x", limit=-1), "limit"),
    (lambda t, s: t.history("x"), "limit"),
    (lambda t, s: t.history(-1), "limit"),
    (lambda t, s: t.restoreToVersion(77), "version 77"),
    (lambda t, s: t.restore_to_tag("none"), "'none'"),
    (lambda t, s: t.create_tag("a b"), "'a b'"),
    (lambda t, s: t.create_tag("u", 77), "version 77"),
    (lambda t, s: t.update_tag("none", 1), "'none'"),
    (lambda t, s: t.delete_tag("none"), "'none'"),
    (lambda t, s: t.create_branch("a b"), "'a b'"),
    (lambda t, s: t.delete_branch("main"), "'main'"),
    (lambda t, s: t.move_fragments("x"), "'x'"),
    (lambda t, s: t.with_target_bases("x"), "x"),
    (lambda t, s: t.repoint_base("x", "/y"), "'x'"),
    (lambda t, s: t.merge(s, "id = 1").execute(), "merge"),
    (lambda t, s: t.merge(s, "id = 1").whenMatchedUpdate(set=3), "set"),
    (lambda t, s: t.upsert(s, conflict_retries=-1), "conflict_retries"),
    (lambda t, s: Table.forPath(s.sparkSession, t.path, version=77), "version 77"),
    (lambda t, s: Table.forPath(s.sparkSession, t.path, version="x"), "tag 'x'"),
    (lambda t, s: Table.forPath(s.sparkSession, t.path, no_such="secret"), "no_such"),
]


def merged(table: Any, source: Any, condition: str | None, values: dict[str, str]) -> None:
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    merge.whenMatchedUpdate(condition, values).execute()


def complaint(uri: str, call: Callable[[], object], word: str) -> str | None:
    """Return what is wrong with the error of a call, or None."""
    try:
        call()
    except LanceError as error:
        message = str(error)
        right = uri in message and word in message and "secret" not in message
        return None if right else f"says {message!r}"
    except Exception as error:
        # Errors that Spark raises name the argument themselves.
        return None if type(error).__module__.startswith("pyspark.errors") else repr(error)
    return "was accepted"


def test_calls(spark: Any, tmp_path: Path) -> None:
    new_table(tmp_path)
    uri = str(tmp_path)
    table = LanceTable.forPath(spark, uri)
    source = spark.sql("SELECT 1L AS id, 'w' AS word")
    before = files_below(tmp_path)
    wrong = {
        (number, word): complaint(uri, lambda call=call: call(table, source), word)
        for number, (call, word) in enumerate(CALLS)
    }
    assert {call: problem for call, problem in wrong.items() if problem} == {}
    assert files_below(tmp_path) == before


READS = {
    "version": ["-1", "1.5", str(2**70)],
    "timestamp": ["yesterday"],
    "branch": [""],
    "columns": ["[3]", '["id", "id"]'],
    "push_filters": ["maybe"],
    "driver_read_bytes": ["x", "-1"],
    "batch_size": ["0", "x", str(2**40)],
    "target_rows_per_partition": ["0", "x"],
    "blob_handling": ["x"],
    "with_row_id": ["maybe"],
    "with_row_address": ["maybe"],
    "fragment_ids": ["x", "-1"],
    "whole_fragments": ["maybe"],
    "fast_search": ["maybe"],
    "full_text_limit": ["x", "-1"],
    "nearest": ["{", "[1]"],
    "prefilter": ["maybe"],
    "approximate_nearest": ["maybe"],
    "nearest_shares": ["maybe"],
    "no_such_option": ["secret"],
}
WRITES = {
    "version": ["1"],
    "data_storage_version": ["9.9"],
    "max_rows_per_file": ["0", "x"],
    "max_bytes_per_file": ["0", "x"],
    "enable_stable_row_ids": ["maybe"],
    "use_large_var_types": ["maybe"],
    "external_blob_mode": ["x"],
    "allow_external_blob_outside_bases": ["maybe"],
    "blob_pack_file_size_threshold": ["x"],
    "commit_retries": ["-1", "x"],
    "initial_bases": ["{"],
    "target_all_bases": ["maybe"],
    "storage_options": ["{secret", "[3]"],
    "no_such_option": ["secret"],
}


@pytest.mark.parametrize(
    ("parse", "options"), [(ReadOptions.parse, READS), (WriteOptions.parse, WRITES)]
)
def test_options(parse: Callable[[dict[str, str]], object], options: dict[str, list[str]]) -> None:
    wrong = {
        (name, value): complaint("/data/t", lambda options=options: parse(options), name)
        for name, values in options.items()
        for value in values
        for options in ({"path": "/data/t", name: value},)
    }
    assert {call: problem for call, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize(
    "options",
    [
        {"mergeSchema": "maybe"},
        {"partitionOverwriteMode": "x"},
        {"txnVersion": "1"},
        {"txnAppId": "a", "txnVersion": "x"},
        {"target_bases": "none"},
        {"replaceWhere": "id ="},
        {"max_rows_per_file": "0"},
    ],
    ids=str,
)
def test_writes(spark: Any, tmp_path: Path, options: dict[str, str]) -> None:
    new_table(tmp_path)
    before = files_below(tmp_path)
    frame = spark.sql("SELECT 1L AS id, 'w' AS word")
    mode = "overwrite" if "replaceWhere" in options else "append"
    writer = frame.write.format("lance").options(**options).mode(mode)
    line = refusal(lambda: writer.save(str(tmp_path)))
    assert str(tmp_path) in line
    # Errors show some names in snake case.
    name = next(reversed(options)).lower().replace("_", "")
    assert name in line.lower().replace("_", "") or "base path 'none'" in line
    assert files_below(tmp_path) == before


def test_values_of_wrong_classes(spark: Any, tmp_path: Path) -> None:
    new_table(tmp_path)
    table = LanceTable.forPath(spark, str(tmp_path))
    source = spark.range(1).withColumnRenamed("id", "k")
    merge = table.merge(source, "id = k")

    def builder() -> Any:
        return LanceTable.create(spark).location(str(tmp_path / "new"))

    for call in (
        lambda: table.update(None, {1: "1"}),  # type: ignore[dict-item]
        lambda: table.update(condition=1, set={"id": "1"}),  # type: ignore[arg-type]
        lambda: merge.whenMatchedUpdate(set={1: "1"}),  # type: ignore[dict-item]
        lambda: table.merge(1, "id = k"),  # type: ignore[arg-type]
        lambda: table.clone(10),  # type: ignore[arg-type]
        lambda: builder().addColumn("a", 1),
        lambda: builder().addColumn(1, "int"),
        lambda: builder().addColumn("a", "int", comment=1),
        lambda: builder().addColumns([1]),
        lambda: builder().property(1, "1"),
    ):
        with pytest.raises(InvalidInputError, match=r" must (be|contain) "):
            call()


def test_a_write_without_a_path(spark: Any) -> None:
    lance_spark.enable(spark)
    line = refusal(lambda: spark.range(1).write.format("lance").save())
    assert 'mode("append").save("/data/t.lance")' in line
    assert "INSERT" not in line


def test_a_path_that_does_not_exist(spark: Any, tmp_path: Path) -> None:
    lance_spark.enable(spark)
    missing = str(tmp_path / "missing")
    conditions = []
    for name in ("lance", "parquet"):
        with pytest.raises(AnalysisException) as caught:
            spark.read.format(name).load(missing).count()
        conditions.append(caught.value.getCondition())
        assert missing in str(caught.value)
    assert conditions == ["PATH_NOT_FOUND"] * 2
    with pytest.raises(PathNotFoundError, match="the path does not exist"):
        LanceTable.forPath(spark, missing)
    with pytest.raises(TableNotFoundError, match="it has no manifest"):
        LanceTable.forPath(spark, str(tmp_path))
