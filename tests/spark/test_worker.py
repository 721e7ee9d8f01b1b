"""Spark's steps of planning run in one Python process, and take pyspark from its folder."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest

import lance_spark
from lance_spark.spark.jvm import enable
from pyspark_lance import worker

#: Prints where modules come from, and what a program can see of the start.
PROBE = """
import os, sys
import pyspark.serializers, py4j.protocol
print(pyspark.__file__, pyspark.serializers.__file__, py4j.__file__)
print([path for path in sys.path if "startup" in path], os.environ["PYTHONPATH"])
print(getattr(sys.modules["sitecustomize"], "other", None))
"""


def number(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def test_a_step_reads_what_spark_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []

    def main(infile: Any, outfile: Any) -> None:
        # The length and the version as Spark sends them, and all else.
        read.extend([infile.read(4), infile.read(4), infile.read(3), infile.readline()])
        outfile.write(b"done")

    step = types.SimpleNamespace(main=main)
    monkeypatch.setitem(sys.modules, "pyspark.sql.worker.some_step", step)
    out = io.BytesIO()
    worker.main(io.BytesIO(number(b"some_step 3.11") + b"abcline\nrest"), out)
    assert read == [b"\0\0\0\4", b"3.11", b"abc", b"line\n"]
    assert out.getvalue() == b"done"
    # Spark has closed the connection.
    with pytest.raises(SystemExit):
        worker.main(io.BytesIO(), out)


def test_one_daemon_plans(spark: Any, tmp_path: Path) -> None:
    lance_spark.enable(spark)
    table = str(tmp_path / "t.lance")
    spark.range(10).write.format("lance").mode("overwrite").save(table)
    assert spark.read.format("lance").load(table).count() == 10
    jvm = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    ran = subprocess.run(
        ["ps", "-ww", "-eo", "ppid,args"], capture_output=True, text=True, check=True
    )
    commands = [line.split() for line in ran.stdout.splitlines()]
    daemons = [
        words[-1] for words in commands if words[0] == str(jvm) and "pyspark.daemon" in words
    ]
    # Tests of formats without push-down start daemons of Spark's own modules in this session.
    assert "pyspark_lance.worker" in daemons


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """A home of Spark, as pip installs it, with archives and folders of a small release."""
    packages = {"pyspark": tmp_path / "pyspark", "py4j": tmp_path / "py4j"}
    library = tmp_path / "pyspark" / "python" / "lib"
    for name, folder in packages.items():
        folder.mkdir(exist_ok=True)
        (folder / "version.py").write_text("__version__ = '1'\n")
        for module in ("__init__", "serializers", "protocol"):
            (folder / f"{module}.py").write_text("")
        library.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(library / f"{name}.zip", "w") as archive:
            for path in folder.glob("*.py"):
                archive.write(path, f"{name}/{path.name}")
    return library


def probe(archives: Path, *folders: Path) -> list[str]:
    paths = [archives / "pyspark.zip", archives / "py4j.zip", *folders]
    ran = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={"PYTHONPATH": os.pathsep.join(map(str, paths))},
        cwd=archives,
        capture_output=True,
        text=True,
        check=True,
    )
    assert not ran.stderr
    return ran.stdout.splitlines()


def test_modules_come_from_the_folder_of_the_same_release(archives: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("other = 'ran'")
    start = enable._STARTUP
    path = f"{archives}/pyspark.zip{os.pathsep}{archives}/py4j.zip"
    zipped = " ".join(
        f"{archives}/{name}"
        for name in ("pyspark.zip/pyspark/__init__.py", "pyspark.zip/pyspark/serializers.py",
                     "py4j.zip/py4j/__init__.py")
    )  # fmt: skip
    # Without compiled modules, the folder is no faster.
    assert probe(archives, start) == [zipped, f"[] {path}", "None"]
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tmp_path)], check=True)
    installed = zipped.replace(f"{archives}/pyspark.zip", str(tmp_path)).replace(
        f"{archives}/py4j.zip", str(tmp_path)
    )
    assert probe(archives, start) == [installed, f"[] {path}", "None"]
    # Another module of this name runs, whether it stands before or after.
    assert probe(archives, start, other) == [installed, f"[] {path}{os.pathsep}{other}", "ran"]
    assert probe(archives, other)[0] == zipped
    # Another release.
    (tmp_path / "pyspark" / "version.py").write_text("__version__ = '2'\n")
    assert probe(archives, start)[0].startswith(str(archives))
