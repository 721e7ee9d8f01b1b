"""Tables by name from configuration alone, by `spark-sql` and the Thrift server of Spark, in which no
Python driver calls `enable`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.__main__ import main
from lance_spark.spark.jvm import enable
from tests.support import pages
from tests.support.cells import ALL_CELLS
from tests.support.spark.processes import JAVA_OPTIONS, environment, write_kept_jar
from tests.support.spark.settings import INTERPRETED
from tests.support.spark.versions import SPARK
from tests.support.stores.azurite import free_port

PROGRAMS = Path(sys.executable).parent
Rows = list[list[str]]
#: Maximum duration of a program.
SECONDS = 300
STATEMENTS = """
CREATE TABLE lake.t (id BIGINT, word STRING);
INSERT INTO lake.t VALUES (1, 'a'), (2, 'b'), (3, 'c');
SELECT 'rows', * FROM lake.t WHERE id > 1 ORDER BY id;
UPDATE lake.t SET word = upper(word) WHERE id = 2;
DELETE FROM lake.t WHERE id IN (SELECT 1L);
MERGE INTO lake.t USING (SELECT id, 'x' AS word FROM range(3, 5)) AS s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
SELECT 'old', count(*) FROM lake.t VERSION AS OF 2;
CREATE TABLE lake.gone AS SELECT id FROM lake.t;
DROP TABLE lake.gone;
CREATE TABLE own (id BIGINT) USING lance;
INSERT INTO own VALUES (1), (2), (3);
UPDATE own SET id = id * 10 WHERE id > 1;
DELETE FROM own WHERE id = 1;
ALTER TABLE own ADD COLUMNS (word STRING);
ALTER TABLE own RENAME TO kept;
CREATE TABLE dropped USING lance AS SELECT id FROM kept;
DROP TABLE dropped;
CREATE TABLE plain USING parquet AS SELECT count(*) AS n FROM kept;
INSERT INTO plain SELECT max(id) FROM kept;
SELECT 'plain', n FROM plain ORDER BY n;
SHOW TABLES IN lake;
"""
#: The effects of the page's Python blocks that later blocks need.
INSTEAD = {
    "createOrReplaceTempView": "CREATE TEMPORARY VIEW more AS SELECT id FROM range(3, 5)",
    "writeTo": "INSERT INTO lake.air.late SELECT id, 'DL' FROM range(10, 12)",
}


def page_of_sql(folder: Path, program: str) -> tuple[str, dict[str, Rows]]:
    """Return the statements of the page about SQL, and the result of the last statement of each
    block in a program. A row with `block` and a number precedes the result of a block.

    A row of `block` and a number comes before what a block shows.
    """
    text, shown = "", {}
    for number, block in enumerate(pages.blocks_of(pages.SQL_PAGE)):
        text += f"SELECT 'block', {number};\n"
        if block.language == "sql":
            text += block.code.replace("/data/", f"{folder}/")
            rows = (block.output or "").splitlines()
            cells = [row.strip("|").split("|") for row in rows if row.startswith("|")]
            part, null = slice(None), "NULL"
            if program == "spark-sql":
                # The program shows only names of tables, and nothing for columns without a comment.
                part = slice(1, 2) if "SHOW TABLES" in block.code else part
                null = "" if "DESCRIBE" in block.code else null
            shown[str(number)] = [
                [cell.strip().replace("NULL", null) for cell in row[part]] for row in cells[1:]
            ]
        text += "".join(f"{new};\n" for word, new in INSTEAD.items() if word in block.code)
    return text, shown


def blocks_shown(lines: Rows) -> dict[str, Rows]:
    """Return the rows that spark-sql shows, by the number of the block."""
    blocks: dict[str, Rows] = {}
    for line in lines:
        if line[0] == "block":
            blocks[line[1]] = []
        elif blocks:
            blocks[list(blocks)[-1]].append([cell.strip() for cell in line])
    return blocks


@pytest.fixture
def configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return the arguments of a Spark program with the settings that `conf` writes."""
    monkeypatch.setattr(enable, "write_jar", write_kept_jar)
    arguments = ["--catalog", "lake", "--root", str(tmp_path / "lake"), "--session-catalog"]
    assert main(["conf", str(tmp_path), *arguments]) == 0
    assert "lake.name" in capsys.readouterr().out
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "1",
        **({} if ALL_CELLS else INTERPRETED),
        # The metastore is a database of files in the current folder.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    return [
        *("--master", "local[1]"),
        *("--properties-file", str(tmp_path / "lance-spark-defaults.conf")),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
    ]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    return environment(SPARK_LOCAL_DIRS=str(tmp_path / "local"))


def rows_by(program: str, *arguments: str, variables: dict[str, str], folder: Path) -> Rows:
    """Run a program that runs statements; return the rows that it shows."""
    ran = subprocess.run(
        [str(PROGRAMS / program), *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    # beeline prints `null` and empty lines where it would show a prompt.
    output = re.sub(r"^(null *)+", "", ran.stdout, flags=re.MULTILINE)
    return [line.split("\t") for line in output.splitlines() if line]


@pytest.mark.skipif(not (PROGRAMS / "spark-sql").exists(), reason="spark-sql is not installed")
def test_spark_sql_has_tables_by_name(
    tmp_path: Path, configured: list[str], variables: dict[str, str]
) -> None:
    page, expected = page_of_sql(tmp_path, "spark-sql")
    # `make test` runs the page in the session of `test_docs_blocks`.
    with_page = ALL_CELLS and SPARK >= (4, 2)
    (tmp_path / "statements.sql").write_text(STATEMENTS + (page if with_page else ""))
    lance.write_dataset(pa.table({"id": range(3)}), str(tmp_path / "flights.lance"))
    file = ("-f", str(tmp_path / "statements.sql"))
    lines = rows_by("spark-sql", *configured, *file, variables=variables, folder=tmp_path)
    blocks = blocks_shown(lines)
    for number, rows in expected.items() if with_page else ():
        assert blocks[number][len(blocks[number]) - len(rows) :] == rows
    shown = [line for line in lines if len(line) > 1][:5]
    assert shown == [
        ["rows", "2", "b"],
        ["rows", "3", "c"],
        ["old", "3"],
        ["plain", "2"],
        ["plain", "30"],
    ]
    assert ["t"] in lines
    table = lance.dataset(str(tmp_path / "lake" / "t.lance"))
    table.validate()
    rows = {row["id"]: row["word"] for row in table.to_table().to_pylist()}
    assert rows == {2: "B", 3: "x", 4: "x"}
    warehouse = tmp_path / "warehouse"
    assert sorted(path.name for path in warehouse.iterdir()) == ["kept", "plain"]
    kept = lance.dataset(str(warehouse / "kept"))
    kept.validate()
    assert sorted(row["id"] for row in kept.to_table().to_pylist()) == [20, 30]
    assert kept.schema.names == ["id", "word"]


@pytest.fixture
def thrift_server(
    tmp_path: Path, configured: list[str], variables: dict[str, str]
) -> Iterator[str]:
    """The address of a running Thrift server."""
    port = free_port()
    command = [
        *(str(PROGRAMS / "spark-submit"), *configured),
        *("--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2", "spark-internal"),
        *("--hiveconf", f"hive.server2.thrift.port={port}"),
        *("--hiveconf", "hive.server2.thrift.bind.host=localhost"),
    ]
    log = tmp_path / "server.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while b"HiveThriftServer2 started" not in log.read_bytes():
            assert server.poll() is None, log.read_text()[-4000:]
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.1)
        yield f"jdbc:hive2://localhost:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait(SECONDS)


@pytest.mark.skipif(not ALL_CELLS, reason="make test-long has all clients of the page of SQL")
@pytest.mark.skipif(SPARK < (4, 3), reason="the page of SQL is written for Spark 4.3")
@pytest.mark.skipif(not (PROGRAMS / "beeline").exists(), reason="beeline is not installed")
def test_clients_of_a_thrift_server_run_the_page_of_sql(
    tmp_path: Path, thrift_server: str, variables: dict[str, str]
) -> None:
    page, expected = page_of_sql(tmp_path, "beeline")
    (tmp_path / "page.sql").write_text(page)
    lance.write_dataset(pa.table({"id": range(3)}), str(tmp_path / "flights.lance"))
    lines = rows_by(
        *("beeline", "-u", thrift_server, "-f", str(tmp_path / "page.sql")),
        *("--silent=true", "--outputformat=tsv2", "--showHeader=false"),
        variables=variables,
        folder=tmp_path,
    )
    blocks = blocks_shown(lines)
    for number, rows in expected.items():
        assert blocks[number][len(blocks[number]) - len(rows) :] == rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--catalog", "a.b"], "the name of a catalog must have letters"),
        (["--option", "a b=1"], "names of options must have letters"),
        (["--option", "storage.secret=x\ny"], "the value of spark.sql.catalog.lance.storage."),
        (["--option", "storage.secret"], "--option must have the form KEY=VALUE"),
    ],
)
def test_values_that_a_settings_file_cannot_hold_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["conf", str(tmp_path), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
