"""`make test-versions`: the tests with the lowest versions of packages, and on newer Pythons.

| environment | Python | packages |
| --- | --- | --- |
| `lowest` | the oldest that `pyproject.toml` allows | the lowest versions of `pyproject.toml`, of the package and of the tests |
| `3.12` and newer | each that is found | the newest versions |

The lower bounds are in `pyproject.toml` alone: uv installs the lowest versions that they allow. Each
environment runs the tests of `make test-fast`, then those of `SPARK`. It is made in `build/` and
removed afterwards. Names choose: `python -m tests.versions lowest 3.13`. The exit status is 1 if a
test fails. This module runs without another package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.release.__main__ import MINORS, ROOT, new_environment, pythons, run
from tests.tools.__main__ import name_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKERS = os.environ.get("WORKERS", "4")
LOWEST = "lowest"
#: Packages of the extra `test` that ask for more than the lowest versions of the package: wordllama
#: for numpy 2. `make test-fast` and `SPARK` do not need them.
NEWER = frozenset({"wordllama"})
#: Tests that start Spark: rows written and read, changed by SQL, streams, Spark's Python workers.
SPARK = (
    "tests/spark/test_end_to_end.py",
    "tests/spark/test_worker.py",
    "tests/spark/sql/test_row_changes.py",
    "tests/spark/table/test_stream_read.py",
    "tests/spark/table/test_stream_write.py",
    "tests/spark/table/test_update_children.py",
)


def find_environments() -> dict[str, Path]:
    """Return the Python of each environment; one whose Python is not found is left out."""
    found = {release.rpartition(".")[0]: python for release, python in pythons()}
    oldest, *newer = (f"3.{minor}" for minor in MINORS)
    environments = {LOWEST: found[oldest]} if oldest in found else {}
    return environments | {name: found[name] for name in newer if name in found}


def install(uv: Path, python: Path, *, lowest: bool) -> None:
    """Install the package and what its tests need."""
    command = (uv, "pip", "install", "-q", "--python", python, "-e")
    if not lowest:
        run(*command, ".[test]")
        return
    resolution = ("--resolution", "lowest-direct")
    bounds = python.with_name("lowest.txt")
    compiled = ("-q", "--no-deps", "--python", python, "-o", bounds, "pyproject.toml")
    run(uv, "pip", "compile", *resolution, *compiled)
    extras = PROJECT["optional-dependencies"]
    # The extra `test` has `demo` by the name of this package.
    absent = NEWER | {PROJECT["name"]}
    packages = [item for item in (*extras["demo"], *extras["test"]) if name_of(item) not in absent]
    run(*command, ".", *resolution, "-c", bounds, *packages)


def describe(python: Path) -> str:
    """Return the versions of Python, of the package's dependencies and of pylance."""
    asked = (
        "import platform, sys; from importlib.metadata import version; "
        "print(platform.python_version(), *(f'{name} {version(name)}' for name in sys.argv[1:]), sep=', ')"
    )
    names = [name_of(requirement) for requirement in (*PROJECT["dependencies"], "pylance")]
    return f"Python {run(python, '-c', asked, *names).strip()}"


def passes(name: str, python: Path, uv: Path) -> bool:
    """Run the tests in a new environment; return whether none fails."""
    folder = ROOT / "build" / f"versions-{name}"
    own = folder / "bin" / "python"
    try:
        run(uv, "venv", "-q", "--clear", "--python", python, folder)
        install(uv, own, lowest=name == LOWEST)
        print(f"{name}: {describe(own)}")
        command = [own, "-m", "pytest", "-q", "-n", WORKERS, "--dist", "worksteal"]
        variables = {**os.environ, "PYSPARK_PYTHON": str(own)}
        # In a run of its own, the selection of fast tests does not import what it leaves out.
        codes = [
            subprocess.run([*command, *selection], cwd=ROOT, env=variables, check=False).returncode
            for selection in (("-m", "not slow", "tests"), SPARK)
        ]
        return not any(codes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(names: list[str]) -> int:
    """Run the tests in the environments of these names, or in all that can be made."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    environments = find_environments()
    if unknown := set(names or [LOWEST]) - set(environments):
        sys.exit(f"no Python for {', '.join(unknown)}; there is one for {', '.join(environments)}")
    with tempfile.TemporaryDirectory() as temporary:
        uv = new_environment(sys.executable, Path(temporary) / "tools", "uv").with_name("uv")
        failed = [
            name for name in names or environments if not passes(name, environments[name], uv)
        ]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
