"""The package imports no other package until it is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_package_starts_light() -> None:
    code = (
        "import sys, lance_spark, lance_spark.errors\n"
        "print([m for m in ('pyarrow', 'numpy', 'pyspark', 'fsspec') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
