"""Tables by name from configuration alone: `spark-sql` has no Python driver to call `enable`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lance_spark.__main__ import main
from tests.support import pages
from tests.support.spark.processes import JAVA_OPTIONS, environment
from tests.support.spark.versions import SPARK

SPARK_SQL = Path(sys.executable).with_name("spark-sql")
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
#: What the Python blocks of the page of SQL do that later blocks need.
INSTEAD = {
    "createOrReplaceTempView": "CREATE TEMPORARY VIEW more AS SELECT id FROM range(3, 5)",
    "writeTo": "INSERT INTO lake.air.late SELECT id, 'DL' FROM range(10, 12)",
}


def page_of_sql(folder: Path) -> tuple[str, dict[str, list[list[str]]]]:
    """Return the statements of the page of SQL, and what the last of each block shows.

    A row of `block` and a number comes before what a block shows.
    """
    text, shown = "", {}
    for number, block in enumerate(pages.blocks_of(pages.SQL_PAGE)):
        text += f"SELECT 'block', {number};\n"
        if block.language == "sql":
            text += block.code.replace("/data/", f"{folder}/")
            rows = (block.output or "").splitlines()
            cells = [row.strip("|").split("|") for row in rows if row.startswith("|")]
            # spark-sql shows only the names of tables, and nothing for columns without a comment.
            part = slice(1, 2) if "SHOW TABLES" in block.code else slice(None)
            null = "" if "DESCRIBE" in block.code else "NULL"
            shown[str(number)] = [
                [cell.strip().replace("NULL", null) for cell in row[part]] for row in cells[1:]
            ]
        text += "".join(f"{new};\n" for word, new in INSTEAD.items() if word in block.code)
    return text, shown


def blocks_shown(lines: list[list[str]]) -> dict[str, list[list[str]]]:
    """Return the rows that spark-sql shows, by the number of the block."""
    blocks: dict[str, list[list[str]]] = {}
    for line in lines:
        if line[0] == "block":
            blocks[line[1]] = []
        elif blocks:
            blocks[list(blocks)[-1]].append([cell.strip() for cell in line])
    return blocks


@pytest.mark.skipif(not SPARK_SQL.exists(), reason=f"no spark-sql beside {sys.executable}")
def test_spark_sql_has_tables_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    arguments = ["--catalog", "lake", "--root", str(lake), "--session-catalog"]
    assert main(["conf", str(tmp_path), *arguments]) == 0
    assert "lake.name" in capsys.readouterr().out
    page, expected = page_of_sql(tmp_path)
    (tmp_path / "statements.sql").write_text(STATEMENTS + (page if SPARK >= (4, 2) else ""))
    lance.write_dataset(pa.table({"id": range(3)}), str(tmp_path / "flights.lance"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.sql.shuffle.partitions": "1",
        # The metastore is a database of files in the current folder.
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    ran = subprocess.run(
        [
            *(str(SPARK_SQL), "--master", "local[1]"),
            *("--properties-file", str(tmp_path / "lance-spark-defaults.conf")),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *("-f", str(tmp_path / "statements.sql")),
        ],
        cwd=tmp_path,
        env=environment(SPARK_LOCAL_DIRS=str(tmp_path / "local")),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    lines = [line.split("\t") for line in ran.stdout.splitlines()]
    blocks = blocks_shown(lines)
    for number, rows in expected.items() if SPARK >= (4, 2) else ():
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
    table = lance.dataset(str(lake / "t.lance"))
    table.validate()
    rows = {row["id"]: row["word"] for row in table.to_table().to_pylist()}
    assert rows == {2: "B", 3: "x", 4: "x"}
    warehouse = tmp_path / "warehouse"
    assert sorted(path.name for path in warehouse.iterdir()) == ["kept", "plain"]
    kept = lance.dataset(str(warehouse / "kept"))
    kept.validate()
    assert sorted(row["id"] for row in kept.to_table().to_pylist()) == [20, 30]
    assert kept.schema.names == ["id", "word"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--catalog", "a.b"], "the name of a catalog must have letters"),
        (["--option", "a b=1"], "names of options must have letters"),
        (["--option", "storage.secret=x\ny"], "the value of spark.sql.catalog.lance.storage."),
        (["--option", "storage.secret"], "--option must have the form KEY=VALUE"),
    ],
)
def test_what_a_file_of_settings_cannot_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["conf", str(tmp_path), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
