"""`make test-tools`: the tests of this folder, each in environments that have its tool.

An environment is made in `build/` and removed afterwards. Names of tools choose: `python -m
tests.tools dbt`. What works is written to `results/`, and the page `docs/howto/other-tools.md` has
its tables from there. The exit status is 1 if a test fails. This module runs without another
package.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.tools import results

ROOT = Path(__file__).parents[2]
#: What is installed beside the package and `COMMON`, by the tool: the newest release that was
#: tried, and older ones if there are. `test_NAME.py` has the tests of a tool. The page shows the
#: releases of the packages with "==".
ENVIRONMENTS = {
    "ibis": (
        # The extra asks for pyspark<4.1.
        (*("ibis-framework==12.*", "sqlglot==30.0.*", "pyspark==4.3.*"), "pyarrow-hotfix", "rich"),
        ("ibis-framework[pyspark]==10.*", "sqlglot==30.0.*", "pyspark==4.0.*"),
    ),
    "sqlframe": (
        ("sqlframe==4.10.*", "pyspark==4.3.*"),
        ("sqlframe==3.40.*", "pyspark==4.0.*"),
    ),
    # pyspark.pandas of 4.3 does not import with pandas 3.
    "pandas_on_spark": (
        ("pandas==2.3.*", "pyspark==4.3.*"),
        ("pandas==2.2.*", "pyspark==4.0.*"),
    ),
    "pyspark_ml": (("pyspark==4.3.*",), ("pyspark==4.0.*",)),
    # The extra asks for pyspark<4.2.
    "great_expectations": (("great-expectations==1.24.*", "pyspark==4.3.*"),),
    "soda": (("soda-sparkdf==4.28.*", "pyspark==4.3.*"),),
    "mlflow": (("mlflow-skinny==3.17.*", "pyspark==4.3.*"),),
    "jupysql": (("jupysql==0.11.*", "pyspark[connect]==4.3.*", "ipykernel"),),
    "dbt": (
        ("dbt-core==1.11.*", "dbt-spark[PyHive]==1.11.*", "pyspark==4.3.*"),
        ("dbt-core==1.9.*", "dbt-spark[PyHive]==1.9.*", "pyspark==4.0.*"),
    ),
    "pipelines": (
        ("pyspark[pipelines]==4.3.*",),
        ("pyspark[pipelines]==4.2.*",),
        ("pyspark[pipelines]==4.1.*",),
    ),
    "lancedb": (("lancedb==0.40.*",), ("lancedb==0.36.*",)),
    "duckdb": (
        ("duckdb==1.5.5", "duckdb-extension-lance==1.5.5"),
        ("duckdb==1.5.1", "duckdb-extension-lance==1.5.1"),
    ),
    "polars": (("polars==2.1.*",), ("polars==1.30.*",)),
    "daft": (("daft[lance]==0.7.26",), ("daft[lance]==0.7.15",)),
    # lance-ray 0.2 to 0.4 fail with the pylance that they install.
    "ray": (("lance-ray==0.5.0",),),
    "datasets": (("datasets==5.2.*",), ("datasets==4.0.*",)),
    "torch": (("torch==2.13.0",),),
}
#: What all tests of tools need of the extra `test`; an environment may ask for another release.
COMMON = ("faiss-cpu", "hypothesis", "pandas", "pylance", "PyStemmer", "pytest")


def name_of(requirement: str) -> str:
    """Return the name of the package of a requirement."""
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def common_requirements(environment: tuple[str, ...]) -> list[str]:
    """Return the requirements of `COMMON` that an environment does not have itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = set(COMMON) - {name_of(requirement) for requirement in environment}
    return [item for item in (*extras["test"], *extras["demo"]) if name_of(item) in wanted]


def passes(tool: str, requirements: tuple[str, ...]) -> bool:
    """Run the tests of a tool in a new environment; return whether none fails.

    If so, keep what they found.
    """
    print(f"{tool}: {' '.join(requirements)}", flush=True)
    folder = ROOT / "build" / f"tools-{tool}"
    shutil.rmtree(folder, ignore_errors=True)
    python, report = folder / "bin" / "python", folder / "report.xml"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "-q", "--no-compile", "-e", "."]
        packages = [*common_requirements(requirements), *requirements]
        subprocess.run([*install, *packages], cwd=ROOT, check=True)
        module = f"tests/tools/test_{tool}.py"
        command = [python, "-m", "pytest", "-q", f"--junitxml={report}", module]
        variables = {**os.environ, "PYSPARK_PYTHON": str(python)}
        if subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode:
            return False
        names = [name_of(requirement) for requirement in requirements if "==" in requirement]
        asked = (
            "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
        )
        found = subprocess.check_output([python, "-c", asked, *names], text=True).split()
        versions = dict(zip(names, found, strict=True))
        results.keep(tool, ENVIRONMENTS[tool], requirements, versions, report)
        return True
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
