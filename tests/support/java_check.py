"""Compiles the Java classes by a JDK: `make java-check`.

Spark's compiler, Janino, which compiles them for users, knows no type arguments and gives no
warnings. A JDK checks the same sources, as they are for each release of Spark, against the jars of
that release.

    python -m tests.support.java_check             for the installed release of pyspark
    python -m tests.support.java_check 4.0 4.1     for others, whose jars it downloads into build/
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from lance_spark.spark.jvm.classes import sources_of

ROOT = Path(__file__).parents[2]
#: Janino has no type arguments, so that types are raw, and casts stand where javac knows the type.
#: A method of Spark that 4.0 needs may be deprecated in 4.3. Jars of Spark name other jars that Spark
#: does not ship.
LINT = "-Xlint:all,-rawtypes,-unchecked,-cast,-deprecation,-path"

#: javac cannot compile a subclass of Spark's LocalTableScanExec, whose methods have the types of
#: Scala's traits. This class stands in its place.
STUB = """
package org.lancespark;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.Seq;
abstract class DriverRowsExec extends SparkPlan {
  private static final long serialVersionUID = 1L;
  static DriverRowsExec of(Seq output, Seq rows, String description) {
    return null;
  }
}
"""


def problems(version: str, jars: Path) -> str:
    """Return what javac says of the sources for a release of Spark; an empty text if nothing."""
    with TemporaryDirectory() as folder:
        sources, classes = Path(folder, "sources"), Path(folder, "classes")
        texts = {**sources_of(version), "org/lancespark/DriverRowsExec.java": STUB}
        for name, text in texts.items():
            path = sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = ["javac", LINT, "-proc:none", "-d", str(classes), "-cp", f"{jars}/*"]
        command += map(str, sources.rglob("*.java"))
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        # Warnings about jars are not about the sources.
        lines = re.findall(
            rf"^{sources}/\S+?/(\w+\.java:\d+: (?:error|warning): .+)", result.stderr, re.M
        )
        if result.returncode and not lines:
            return result.stderr
        return "\n".join(lines)


def downloaded(release: str) -> Path:
    """Return the folder with the jars of a release such as 4.0, from the package registry."""
    folder = ROOT / "build" / "pyspark" / release
    if not folder.exists():
        with TemporaryDirectory() as temporary:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", temporary]
            subprocess.run([*command, f"pyspark=={release}.*"], check=True)
            (archive,) = Path(temporary).iterdir()
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tarfile.open(archive) as files, TemporaryDirectory(dir=folder.parent) as unpacked:
                for member in files:
                    path = PurePosixPath(member.name)
                    if path.parent.name == "jars" and path.suffix == ".jar":
                        content = files.extractfile(member)
                        assert content is not None
                        Path(unpacked, path.name).write_bytes(content.read())
                Path(unpacked).rename(folder)
                Path(unpacked).mkdir()
    return folder


def main() -> None:
    import pyspark

    own = ".".join(pyspark.__version__.split(".")[:2])
    found = False
    for release in sys.argv[1:] or [own]:
        jars = Path(pyspark.__file__).parent / "jars" if release == own else downloaded(release)
        text = problems(release, jars)
        print(text or f"pyspark {release}: no problem", flush=True)
        found = found or bool(text)
    sys.exit(found)


if __name__ == "__main__":
    main()
