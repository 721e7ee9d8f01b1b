"""Branches by both clients, and reads of their rows and manifests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pytest

from lance_spark import open_dataset
from lance_spark.table.manifest.codec import decode
from tests.support.tables.pylance_written import rows


def source_table(tmp_path: Path) -> Path:
    """Write four versions: ids 0 to 5, an index, a deletion of id 1, an append of ids 6 to 8."""
    path = tmp_path / "t"
    dataset = lance.write_dataset(rows(0, 6), str(path), max_rows_per_file=3)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 1")
    lance.write_dataset(rows(6), str(path), mode="append")
    return path


def pylance_branch(path: Path, name: str, reference: Any = None) -> None:
    lance.dataset(str(path)).create_branch(name, reference)


def our_branch(path: Path, name: str, reference: Any = None) -> None:
    open_dataset(str(path)).create_branch(name, reference)


CLIENTS = pytest.mark.parametrize("create", [our_branch, pylance_branch])
Create = Callable[..., None]


def read_ids(path: Path, branch: str) -> list[int]:
    """Return the ids on a branch, which both clients must read."""
    ours = open_dataset(str(path), branch=branch)
    theirs = lance.dataset(str(path)).checkout_version((branch, None))
    theirs.validate()
    assert (ours.version, ours.branch) == (theirs.version, branch)
    assert ours.to_table() == theirs.to_table()
    for item in ours.to_table()["id"].to_pylist():
        assert theirs.to_table(filter=f"id = {item}").num_rows == 1
    return sorted(ours.to_table()["id"].to_pylist())


def manifest_of(path: Path, branch: str) -> Any:
    (file,) = (path / "tree" / branch / "_versions").glob("*.manifest")
    return decode(file.read_bytes(), str(file))


def clean_manifest(message: Any) -> Any:
    """Return a manifest without the fields that differ between writes or clients."""
    for name in (
        "timestamp",
        "transaction_file",
        "transaction_section",
        "writer_version",
        "branch",
    ):
        message.ClearField(name)
    bases = sorted(message.base_paths, key=lambda base: base.id)
    message.ClearField("base_paths")
    message.base_paths.extend(bases)
    return message
