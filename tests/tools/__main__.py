"""`make test-tools`: the tests of this folder, each in environments that have its tool.

An environment is made in `build/` and removed afterwards. Names of tools choose: `python -m
tests.tools dbt`. The exit status is 1 if a test fails. This module runs without another package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What is installed beside the package and its tests, by the tool: the newest release that was
#: tried, and an older one. `test_NAME.py` has the tests of a tool.
ENVIRONMENTS = {
    "dbt": (
        ("dbt-core==1.11.*", "dbt-spark[PyHive]==1.11.*", "pyspark==4.3.*"),
        ("dbt-core==1.9.*", "dbt-spark[PyHive]==1.9.*", "pyspark==4.0.*"),
    ),
    "pipelines": (
        ("pyspark[pipelines]==4.3.*",),
        ("pyspark[pipelines]==4.2.*",),
        ("pyspark[pipelines]==4.1.*",),
    ),
}


def passes(tool: str, requirements: tuple[str, ...]) -> bool:
    """Run the tests of a tool in a new environment; return whether all pass."""
    print(f"{tool}: {' '.join(requirements)}", flush=True)
    folder = ROOT / "build" / f"tools-{tool}"
    shutil.rmtree(folder, ignore_errors=True)
    python = folder / "bin" / "python"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "-q", "-e", ".[test]", *requirements]
        subprocess.run(install, cwd=ROOT, check=True)
        command = [python, "-m", "pytest", "-q", f"tests/tools/test_{tool}.py"]
        variables = {**os.environ, "PYSPARK_PYTHON": str(python)}
        return subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode == 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(names: list[str]) -> int:
    """Run the tests of the tools of these names, or of all."""
    unknown = set(names) - set(ENVIRONMENTS)
    if unknown:
        sys.exit(f"tools must be some of {', '.join(ENVIRONMENTS)}, not {', '.join(unknown)}")
    failed = [
        f"{tool} with {' '.join(requirements)}"
        for tool in names or ENVIRONMENTS
        for requirements in ENVIRONMENTS[tool]
        if not passes(tool, requirements)
    ]
    for environment in failed:
        print(f"failed: {environment}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
