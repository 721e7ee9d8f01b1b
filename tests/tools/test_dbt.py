"""The project `examples/dbt` and the macros of `dbt/`: in the catalog of the session, in a catalog of
Lance tables by name, and by a Thrift server of Spark. pylance reads the tables.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest
from dbt.adapters.spark.connections import SparkCredentials

from lance_spark.__main__ import main
from lance_spark.spark.jvm import enable
from tests.support.spark.processes import JAVA_OPTIONS, ROOT, environment, write_kept_jar
from tests.support.spark.settings import INTERPRETED
from tests.support.spark.versions import SPARK
from tests.support.stores.azurite import free_port

#: What precedes a reply of `run_dbt.py`: dbt writes its log to the same stream.
REPLY = "reply: "
#: Maximum duration of a start of a server.
SECONDS = 300
#: The targets of the example's profile, and the schema that each has.
SCHEMAS = {"session_catalog": "flights", "catalog_by_name": "lance.flights", "thrift": "flights"}


class Dbt:
    """dbt in a process of its own, with a copy of the example."""

    def __init__(self, folder: Path, target: str, variables: dict[str, str]):
        self.target = target
        self.schema = SCHEMAS[target]
        self.project = folder / "examples" / "dbt"
        self.folder = folder
        self._log = (folder / f"{target}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "tools" / "run_dbt.py")],
            cwd=folder,
            env={**variables, "DBT_PROFILES_DIR": str(self.project), "DO_NOT_TRACK": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(REPLY):
                return json.loads(line.removeprefix(REPLY))
            self._log.write(line)
        raise AssertionError(Path(self._log.name).read_text()[-4000:])

    def try_command(self, command: str, *arguments: str) -> dict[str, Any]:
        """Run a command; return what the runner replies."""
        places = ("--project-dir", str(self.project))
        target = () if command == "deps" else ("--target", self.target)
        return self._ask(dbt=["--no-use-colors", command, *arguments, *places, *target])

    def __call__(self, command: str, *arguments: str) -> dict[str, list[str]]:
        """Run a command that succeeds; return status and message of each node."""
        result = self.try_command(command, *arguments)
        self._log.flush()
        assert result["success"], (result, Path(self._log.name).read_text()[-6000:])
        return result["nodes"]

    def sql(self, statement: str) -> list[list[str]]:
        """Run a statement in the session of dbt; return its rows."""
        return self._ask(sql=statement)

    def refused(self, command: str, *arguments: str) -> str:
        """Run a command that fails; return the messages."""
        result = self.try_command(command, *arguments)
        assert not result["success"], result
        return " ".join([result["error"], *(message for _, message in result["nodes"].values())])

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        file = self.project / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    def model(self, name: str, text: str) -> None:
        """Write a model."""
        self.write(f"models/{name}.sql", text)

    def table(self, name: str) -> lance.LanceDataset:
        """Open the table of a model by pylance."""
        if self.schema.startswith("lance."):
            (path,) = (self.folder / "lake").glob(f"*_flights${name}")
        else:
            path = self.folder / "warehouse" / "flights.db" / name
        dataset = lance.dataset(str(path))
        dataset.validate()
        return dataset

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return the rows of the table of a model in order, as pylance reads them."""
        rows = self.table(name).to_table(list(columns) or None).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=str)

    def indexes(self, name: str) -> set[str]:
        return {index["name"] for index in self.table(name).list_indices()}

    def version(self, name: str) -> int:
        return self.table(name).version

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)
        self._log.close()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the folder of all, and the arguments of Spark with the settings that `conf` writes."""
    folder = tmp_path_factory.mktemp("dbt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enable, "write_jar", write_kept_jar)
        assert main(["conf", str(folder), "--root", str(folder / "lake"), "--session-catalog"]) == 0
    values = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **INTERPRETED,
    }
    file = folder / "lance-spark-defaults.conf"
    file.write_text(file.read_text() + "".join(f"{n} {v}\n" for n, v in values.items()))
    return folder, ["--master", "local[2]", "--properties-file", str(file)]


@contextmanager
def thrift_server(folder: Path, arguments: list[str], variables: dict[str, str]) -> Iterator[int]:
    """Run a Thrift server of Spark; yield its port."""
    port = free_port()
    command = [
        *(str(Path(sys.executable).parent / "spark-submit"), *arguments),
        *("--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"),
        *("--hiveconf", f"hive.server2.thrift.port={port}"),
        *("--hiveconf", "hive.server2.thrift.bind.host=localhost"),
    ]
    log = folder / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + SECONDS
        while b"HiveThriftServer2 started" not in log.read_bytes():
            assert server.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(SECONDS)


@pytest.fixture(scope="module", params=["session_catalog", "catalog_by_name", "thrift"])
def dbt(
    request: pytest.FixtureRequest, settings: tuple[Path, list[str]], tmp_path_factory: Any
) -> Iterator[Dbt]:
    """Return dbt with a copy of the example, by each of its targets."""
    target = request.param
    folder = tmp_path_factory.mktemp(target)
    shutil.copytree(ROOT / "dbt", folder / "dbt")
    ignored = shutil.ignore_patterns("dbt_packages", "target", "logs", "package-lock.yml")
    shutil.copytree(ROOT / "examples" / "dbt", folder / "examples" / "dbt", ignore=ignored)
    file, arguments = folder / "spark.conf", settings[1]
    text = Path(arguments[-1]).read_text()
    for place in ("lake", "warehouse"):
        text = text.replace(f"{settings[0]}/{place}", f"{folder}/{place}")
    file.write_text(text)
    arguments = [*arguments[:-1], str(file)]
    variables = environment(SPARK_LOCAL_DIRS=str(folder / "local"))
    if target != "thrift":
        variables["PYSPARK_SUBMIT_ARGS"] = " ".join([*arguments, "pyspark-shell"])
        runner = Dbt(folder, target, variables)
        try:
            yield runner
        finally:
            runner.end()
        return
    if hasattr(SparkCredentials, "poll_interval"):
        # Newer releases wait for seconds after each statement.
        with (folder / "examples" / "dbt" / "profiles.yml").open("a") as profile:
            profile.write("      poll_interval: 0\n")
    with thrift_server(folder, arguments, variables) as port:
        runner = Dbt(folder, target, {**variables, "THRIFT_PORT": str(port)})
        try:
            yield runner
        finally:
            runner.end()


FIRST_DAYS = ("--event-time-start", "2026-01-01", "--event-time-end", "2026-01-03")
LATER_DAYS = ("--event-time-start", "2026-01-02", "--event-time-end", "2026-01-04")
CARRIERS = """code,name,note
UA,United Airlines,
DL,Delta Air Lines,"it's large"
WN,Southwest,C:\\temp
"""
FLIGHTS = """id,carrier,origin,flown_at,delay
1,UA,EWR,2026-01-01 06:15:00,99
2,DL,JFK,2026-01-01 07:40:00,-3
3,UA,LGA,2026-01-02 09:05:00,40
5,WN,JFK,2026-01-03 08:00:00,7
9007199254740993,WN,JFK,2026-01-03 09:00:00,8
"""


@pytest.fixture(scope="module")
def built(dbt: Dbt) -> Dbt:
    """Return dbt with the example after its first build."""
    dbt("deps")
    nodes = dbt("build", *FIRST_DAYS)
    assert {status for status, _ in nodes.values()} == {"success", "pass"}
    return dbt


def test_example(built: Dbt) -> None:
    """The project `examples/dbt`: seeds, models of all kinds, snapshots, data tests and comments,
    then a second build after other rows came, which keeps tags and indexes.
    """
    dbt = built
    carriers = [
        ("AA", "American Airlines", None),
        ("DL", "Delta Air Lines", "it's large"),
        ("UA", "United Air Lines", None),
    ]
    assert dbt.rows("carriers") == carriers
    assert dbt.version("raw_flights") == 1
    assert dbt.rows("delays", "code", "flights") == [("AA", 1), ("DL", 1), ("UA", 2)]
    assert dbt.table("vectors").schema.field("embedding").type.list_size == 2
    assert dbt.indexes("vectors") == {"by_id"}
    assert len(dbt.rows("log")) == len(dbt.rows("latest")) == len(dbt.rows("batches")) == 4
    assert dbt.rows("by_day", "flights", "delay") == [(2, 4), (2, 62)]
    assert len(dbt.rows("carriers_history")) == 3
    # What users do with versions between two runs.
    for name in ("delays", "carriers", "latest"):
        dbt.table(name).tags.create("kept", dbt.version(name))
    versions = {
        name: dbt.version(name) for name in ("delays", "log", "latest", "by_day", "batches")
    }

    dbt.write("seeds/carriers.csv", CARRIERS)
    dbt.write("seeds/raw_flights.csv", FLIGHTS)
    dbt("build", *LATER_DAYS)
    assert dbt.rows("carriers", "code", "note")[2] == ("WN", "C:\\temp")
    big = 9007199254740993
    assert dbt.rows("latest", "id", "carrier", "delay") == [
        (1, "UA", 99),
        (2, "DL", 0),
        (3, "UA", 40),
        (4, "AA", 0),
        (5, "WN", 7),
        (big, "WN", 8),
    ]
    assert [row[0] for row in dbt.rows("log", "id")] == [1, 2, 3, 4, 5, big]
    assert dbt.rows("by_day", "flights", "delay") == [(1, 40), (2, 15), (2, 62)]
    # The batch of the first day did not run again.
    assert dbt.rows("batches", "id", "delay") == [(1, 62), (2, 0), (3, 40), (5, 7), (big, 8)]
    assert dbt.indexes("latest") == {"by_id"}
    assert dbt.indexes("vectors") == {"by_id"}
    assert dbt.rows("delays", "code", "flights") == [("DL", 1), ("UA", 2), ("WN", 2)]
    assert len(dbt.table("delays").checkout_version("kept").to_table()) == 3
    assert dbt.table("carriers").checkout_version("kept").to_table()["code"].to_pylist()[0] == "UA"
    more = {name: dbt.version(name) - version for name, version in versions.items()}
    assert more == {"delays": 2, "log": 1, "latest": 1, "by_day": 1, "batches": 2}
    history = dbt.table("carriers_history").to_table().to_pylist()
    current = {row["code"]: row["name"] for row in history if row["dbt_valid_to"] is None}
    assert current == {"UA": "United Airlines", "DL": "Delta Air Lines", "WN": "Southwest"}
    ended = {row["code"] for row in history if row["dbt_valid_to"] is not None}
    assert ended == {"UA", "AA"}
    assert len(history) == 5


def test_docs(built: Dbt) -> None:
    """`dbt docs generate`: the pages have the columns of all tables."""
    built("docs", "generate")
    catalog = json.loads((built.project / "target" / "catalog.json").read_text())
    nodes = {name.split(".")[2]: node for name, node in catalog["nodes"].items()}
    tables = {"carriers", "delays", "vectors", "log", "latest", "by_day", "batches"}
    assert tables | {"raw_flights", "carriers_history"} <= set(nodes)
    assert {name: column["type"] for name, column in nodes["delays"]["columns"].items()} == {
        "code": "string",
        "name": "string",
        "flights": "long",
        "mean_delay": "double",
    }


#: What the second run of a model does to the columns of its table, by on_schema_change: the columns
#: of its query, and those of the table afterwards.
CHANGES = {
    "ignore": ("2L as id, 1 as old, 'x' as new", ["id", "old"]),
    "append_new_columns": ("'x' as new, 2L as id", ["id", "old", "new"]),
    "sync_all_columns": ("'x' as new, 2L as id", ["id", "new"]),
    "fail": ("'x' as new, 2L as id", ["id", "old"]),
}


def test_changed_columns(built: Dbt) -> None:
    """`on_schema_change` of incremental models, and `--full-refresh`."""
    dbt = built
    kept = {"append": [1, 2], "merge": [1, 2], "insert_overwrite": [2]}
    cases = {f"changed_{s}_{change}": (s, change) for s in kept for change in CHANGES}
    for name, (strategy, change) in cases.items():
        columns = CHANGES[change][0]
        if strategy == "merge" and change == "append_new_columns":
            columns += ", 1 as old"  # The clause UPDATE SET * needs all columns of the table.
        dbt.model(
            name,
            "{{ config(materialized='incremental', unique_key='id', incremental_strategy='"
            f"{strategy}', on_schema_change='{change}') "
            "}}select {% if is_incremental() %}"
            + columns
            + "{% else %}1L as id, 1 as old{% endif %}",
        )
    select = ("--select", *cases)
    dbt("run", *select)
    results = dbt.try_command("run", *select)["nodes"]
    for name, (strategy, change) in cases.items():
        status, message = results[name]
        assert status == ("error" if change == "fail" else "success"), message
        assert change != "fail" or "out of sync" in message
        assert dbt.table(name).schema.names == CHANGES[change][1]
        assert [row[0] for row in dbt.rows(name, "id")] == (
            [1] if change == "fail" else kept[strategy]
        )
        if "new" in CHANGES[change][1]:
            assert dbt.rows(name, "id", "new")[-1] == (2, "x")
    dbt("run", *select, "--full-refresh")
    for name in cases:
        assert dbt.rows(name) == [(1, 1)]
        # The first version is still there.
        assert dbt.table(name).checkout_version(1).to_table().to_pylist() == [{"id": 1, "old": 1}]


def test_partitions(built: Dbt) -> None:
    """`insert_overwrite` replaces the partitions of the query alone, also by several columns and
    null.
    """
    dbt = built
    dbt.model(
        "parts",
        "{{ config(materialized='incremental', incremental_strategy='insert_overwrite',"
        " partition_by=['a', 'b']) }}"
        "{% if is_incremental() %}select * from values (1, 'x', 9), (2, null, 9) as t(a, b, n)"
        "{% else %}select * from values (1, 'x', 1), (1, 'y', 1), (2, null, 1) as t(a, b, n)"
        "{% endif %}",
    )
    dbt("run", "--select", "parts")
    dbt("run", "--select", "parts")
    assert dbt.rows("parts") == [(1, "x", 9), (1, "y", 1), (2, None, 9)]


def test_types_of_event_times(built: Dbt) -> None:
    """`microbatch` replaces the rows of a batch, also if the query has none for it, by dates and
    timestamps of both kinds.
    """
    dbt = built
    names = {
        f"batches_by_{name}": name for name in ("date", "timestamp", "timestamp_ntz", "string")
    }
    for name, type_name in names.items():
        dbt.model(
            name,
            "{{ config(materialized='incremental', incremental_strategy='microbatch',"
            " event_time='at', begin='2026-01-01', batch_size='day') }}"
            "select * from values (1, cast('2026-01-01' as {t})), (2, cast('2026-01-02' as {t})),"
            " (3, cast('2026-01-02' as {t})), (4, cast('2026-01-03' as {t})) as t(id, at)"
            " where id <> {{ var('without', 0) }}".replace("{t}", type_name),
        )
    select = ("--select", *names)
    first = ("--event-time-start", "2026-01-01", "--event-time-end", "2026-01-02")
    dbt("run", *select, *first)
    days = ("--event-time-start", "2026-01-02", "--event-time-end", "2026-01-03")
    results = dbt.try_command("run", *select, *days, "--vars", "without: 2")["nodes"]
    assert results.pop("batches_by_string")[0] == "error"
    assert {status for status, _ in results.values()} == {"success"}
    for name in results:
        assert [row[0] for row in dbt.rows(name, "id")] == [1, 3, 4]


MERGED = """
{{ config(
    materialized='incremental', incremental_strategy='merge', unique_key=['a', 'b'],
    merge_exclude_columns=['kept'], incremental_predicates=['DBT_INTERNAL_DEST.b < 3']
) }}
{% if is_incremental() %}
select * from values (1, 1, 'new', 'new'), (1, 3, 'new', 'new') as t(a, b, kept, changed)
{% else %}
select * from values (1, 1, 'old', 'old'), (1, 2, 'old', 'old'), (1, 3, 'old', 'old') as t(a, b, kept, changed)
{% endif %}
"""


def test_merge_by_several_keys(built: Dbt) -> None:
    """`merge` by several keys, with `merge_exclude_columns` and `incremental_predicates`."""
    dbt = built
    dbt.model("merged", MERGED)
    dbt("run", "--select", "merged")
    dbt("run", "--select", "merged")
    assert dbt.rows("merged") == [
        (1, 1, "old", "new"),
        (1, 2, "old", "old"),
        (1, 3, "new", "new"),
        (1, 3, "old", "old"),
    ]


SNAPSHOTS = """
snapshots:
  - name: by_time
    relation: ref('people')
    config:
      unique_key: id
      strategy: timestamp
      updated_at: at
      hard_deletes: new_record
      dbt_valid_to_current: "to_timestamp('9999-12-31')"
  - name: by_columns
    relation: ref('people')
    config:
      unique_key: [id, name]
      strategy: check
      check_cols: [at]
      snapshot_meta_column_names: {dbt_valid_to: until}
"""


def test_snapshots(built: Dbt) -> None:
    """Snapshots by time and by columns, with rows of deletions, other names, and a column that is
    added.
    """
    dbt = built
    dbt.write("snapshots/people.yml", SNAPSHOTS)
    values = "{{{{ config(materialized='table') }}}} select id, name, cast(day as timestamp) as at{} from values {} as t(id, name, day)"
    dbt.model("people", values.format("", "(1, 'Ada', '2026-01-01'), (2, 'Ben', '2026-01-01')"))
    dbt("build", "--select", "people+")
    dbt.model("people", values.format(", 7 as n", "(1, 'Ada', '2026-01-02')"))
    dbt("build", "--select", "people+")
    rows = dbt.table("by_time").to_table().to_pylist()
    found = sorted((row["id"], row["dbt_is_deleted"], row["dbt_valid_to"].year) for row in rows)
    assert found == [(1, "False", 2026), (1, "False", 9999), (2, "False", 2026), (2, "True", 9999)]
    rows = dbt.table("by_columns").to_table().to_pylist()
    found = sorted((row["id"], row["until"] is None, row["n"] or 0) for row in rows)
    assert found == [(1, False, 0), (1, True, 7), (2, True, 0)]


UNIT_TEST = """
unit_tests:
  - name: delays_of_carriers
    model: delays
    given:
      - input: ref('flights')
        rows: [{carrier: UA, delay: 4}, {carrier: UA, delay: 6}]
      - input: ref('carriers')
        rows: [{code: UA, name: United}]
    expect:
      rows: [{code: UA, name: United, flights: 2, mean_delay: 5.0}]
"""


def test_unit_tests(built: Dbt) -> None:
    """Unit tests."""
    dbt = built
    if dbt.schema.startswith("lance."):
        pytest.skip("dbt has no unit tests of models that read ephemeral models")
    dbt.write("models/unit.yml", UNIT_TEST)
    dbt("test", "--select", "delays_of_carriers")


CONTRACT = """
models:
  - name: strict
    config:
      contract: {enforced: true}
    constraints:
      - {type: check, name: positive, expression: "price > 0"}
    columns:
      - {name: id, data_type: bigint, constraints: [{type: not_null}]}
      - {name: price, data_type: "decimal(5,2)"}
"""


def test_contract(built: Dbt) -> None:
    """Contracts with constraints; on Spark 4.0, constraints are refused."""
    dbt = built
    dbt.write("models/strict.yml", CONTRACT)
    dbt.model(
        "strict",
        "{{ config(materialized='incremental', on_schema_change='fail') }}"
        "select {{ var('id', '1') }}L as id, cast({{ var('price', '1') }} as decimal(5,2)) as price",
    )
    if SPARK < (4, 1):
        assert "need Spark 4.1" in dbt.refused("run", "--select", "strict")
        return
    dbt("run", "--select", "strict")
    assert "positive" in dbt.refused("run", "--select", "strict", "--vars", "{id: 2, price: 0}")
    dbt("run", "--select", "strict", "--vars", "id: 2")
    dbt("run", "--select", "strict", "--full-refresh")
    message = dbt.refused("run", "--select", "strict", "--vars", "id: nullif(1, 1) + 0")
    assert "dbt_" in message or "CHECK_CONSTRAINT" in message
    assert dbt.rows("strict", "id") == [(1,)]
    dbt.model("strict", "{{ config(materialized='table') }} select 1 as id, 2 as price")
    assert "contract" in dbt.refused("run", "--select", "strict")
    assert dbt.rows("strict", "id") == [(1,)]


def test_other_materializations(built: Dbt) -> None:
    """A model changes from a table to a view and back, and to another format; tests keep the rows
    that fail.
    """
    dbt = built
    dbt.model("changing", "{{ config(materialized='table') }} select 1 as id")
    dbt("run", "--select", "changing")
    if dbt.schema.startswith("lance."):
        dbt.model("changing", "{{ config(materialized='view') }} select 2 as id")
        assert "has no views; materialize" in dbt.refused("run", "--select", "changing")
        assert dbt.rows("changing") == [(1,)]
    else:
        dbt.model("changing", "{{ config(materialized='view') }} select 2 as id")
        dbt("run", "--select", "changing")
        dbt.model("changing", "{{ config(materialized='incremental') }} select 3 as id")
        dbt("run", "--select", "changing")
        assert dbt.rows("changing") == [(3,)]
        dbt.model(
            "changing", "{{ config(materialized='table', file_format='parquet') }} select 4 as id"
        )
        dbt("run", "--select", "changing")
        dbt.model("changing", "{{ config(materialized='incremental') }} select 5 as id")
        assert "is not a Lance table" in dbt.refused("run", "--select", "changing")
        dbt("run", "--select", "changing", "--full-refresh")
        assert dbt.rows("changing") == [(5,)]
        dbt.model(
            "plain",
            "{{ config(materialized='incremental', file_format='parquet') }} select 4 as id",
        )
        dbt("run", "--select", "plain")
        dbt("run", "--select", "plain")
    dbt.write(
        "tests/fails.sql", "{{ config(store_failures=true, severity='warn') }} select 7 as id"
    )
    dbt("test", "--select", "fails")


def test_settings_of_tables(built: Dbt) -> None:
    """`location_root`, `options` and `tblproperties`."""
    dbt = built
    root = dbt.folder / ("lake" if dbt.schema.startswith("lance.") else "elsewhere")
    dbt.model(
        "placed",
        "{{ config(materialized='table', location_root='" + str(root) + "',"
        " options={'data_storage_version': '2.1'}, tblproperties={'team': \"o'x\"}) }} select 1 as id",
    )
    dbt("run", "--select", "placed")
    dbt("run", "--select", "placed")
    dataset = lance.dataset(str(root / "placed"))
    dataset.validate()
    assert dataset.version == 2
    assert dataset.data_storage_version == "2.1"
    assert dataset.metadata["team"] == "o'x"


REFUSED = {
    "other_strategy": (
        "materialized='incremental', incremental_strategy='delete+insert'",
        "incremental_strategy must be one of append, merge, insert_overwrite, microbatch",
    ),
    "buckets": ("materialized='table', clustered_by='id', buckets=3", "have no buckets"),
}


def test_refusals(built: Dbt) -> None:
    """Models that cannot be built are refused before anything is changed."""
    dbt = built
    for name in (*REFUSED, "python"):
        dbt.model(name, "{{ config(materialized='table') }} select 1 as id")
    dbt("run", "--select", *REFUSED, "python")
    for name, (config, _) in REFUSED.items():
        dbt.model(name, "{{ config(" + config + ") }} select 2 as id")
    (dbt.project / "models" / "python.sql").unlink()
    dbt.write(
        "models/python.py",
        "def model(dbt, session):\n"
        "    dbt.config(materialized='table')\n"
        "    return session.range(1)\n",
    )
    results = dbt.try_command("run", "--select", *REFUSED, "python")["nodes"]
    messages = {name: message for name, (_, message) in REFUSED.items()}
    for name, message in {**messages, "python": "Python models cannot be Lance tables"}.items():
        assert message in results[name][1]
        assert dbt.rows(name) == [(1,)]
    (dbt.project / "models" / "python.py").unlink()


def test_default_catalog(built: Dbt) -> None:
    """With `spark.sql.defaultCatalog`, the schema has one part, and names the same tables."""
    dbt = built
    if dbt.target != "catalog_by_name":
        pytest.skip("the session's catalog is the default")
    dbt.sql("SET spark.sql.defaultCatalog = lance")
    try:
        before = dbt.version("delays")
        dbt.target = "session_catalog"
        dbt("run", "--select", "delays", "--vars", "has_views: false")
        assert dbt.version("delays") > before
    finally:
        dbt.target = "catalog_by_name"
        dbt.sql("RESET spark.sql.defaultCatalog")
