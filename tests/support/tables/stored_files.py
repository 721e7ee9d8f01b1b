"""Data files and deletion files of a table on the local disk, and the files that versions refer
to.
"""

from __future__ import annotations

from pathlib import Path

import lance

from lance_spark.table.open import open_table


def data_files(path: Path) -> set[str]:
    """Return the names in the folder of data files."""
    return {file.name for file in (path / "data").iterdir()}


def files(path: Path) -> set[str]:
    """Return the names of data files and deletion files."""
    return data_files(path) | {file.name for file in path.glob("_deletions/*")}


def named(path: Path) -> set[str]:
    """Return the names of the data files and deletion files that a version refers to."""
    names = set()
    for version in lance.dataset(path).versions():
        for fragment in open_table(str(path), version=version["version"]).manifest.fragments:
            names |= {file.path for file in fragment.files}
            names |= {overlay.data_file.path for overlay in fragment.overlays}
            if fragment.deletion_file is not None:
                names.add(fragment.deletion_file.name(fragment.id))
    return names
