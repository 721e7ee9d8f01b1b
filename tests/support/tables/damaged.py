"""Manifests that are changed in place, as damage or other writers change them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lance_spark.proto import table_pb2
from lance_spark.table.manifest.codec import decode, encode


def newest_manifest(path: Path) -> Path:
    """Return the file of the newest version of a table whose manifests have names of scheme V2."""
    return min((path / "_versions").glob("*.manifest"))


def rewrite_manifest(
    path: Path,
    change: Callable[[table_pb2.Manifest], object] = lambda _: None,
    change_indexes: Callable[[table_pb2.IndexSection], object] | None = None,
) -> None:
    """Write the newest manifest of a table again, after a change of its message and of its index
    section.
    """
    file = newest_manifest(path)
    manifest = decode(file.read_bytes(), str(file))
    proto = manifest.to_proto()
    change(proto)
    section = manifest.index_section
    if change_indexes is not None:
        indexes = table_pb2.IndexSection.FromString(section or b"")
        change_indexes(indexes)
        section = indexes.SerializeToString()
    data = encode(proto, section, manifest.transaction_section, manifest.dictionaries)
    file.write_bytes(data)


def files_below(path: Path) -> set[str]:
    """Return all files below a folder, by their relative paths."""
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
