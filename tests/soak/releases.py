"""Environments of releases of pylance, each with an interpreter of its own.

`python_of` makes an environment in `~/.cache/lance_spark_tests` at the first use, which takes a
minute and needs a package registry.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Releases that read and write tables with stable row ids and indexes. Releases before 4 do not:
#: after a compaction by any pylance, their filters by an index end with a panic or with other rows
#: (docs/explanation/row-ids.md).
RELEASES = ("4.0.1", "8.0.1", "11.0.0")
_BESIDE = ("pyarrow==22.0.0", "numpy==2.2.6")


def python_of(release: str) -> Path:
    """Return the interpreter of a release."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "lance_spark_tests" / f"pylance-{release}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        packages = (f"pylance=={release}", *_BESIDE)
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        complete.touch()
    return python
