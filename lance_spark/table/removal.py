"""Deletes all files of a table or a branch, and what its manifest store records of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lance_spark.storage.errors import translated
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.manifest import versions
from lance_spark.table.refs.names import REFS


def delete_files(
    store: ObjectStore,
    root: str,
    paths: Sequence[str],
    forgotten: Iterable[ObjectStore],
    *,
    manifests_first: bool,
) -> None:
    """Delete files, the entries in a manifest store, and the folders that are empty then.

    - `store`: The paths are relative to its root.
    - `root`: Folder of the table or branch. The folders above it stay.
    - `forgotten`: The roots whose entries are deleted.
    - `manifests_first`: If true, no version lacks files at any time. Tags and branches are deleted
      before the manifests: a table that is created at the path after an interruption would have
      them. If false, what is left after an interruption can be recognised as a table. The newest
      manifest is deleted last.
    """
    manifests = [path for path in paths if path.startswith(f"{root}/{versions.FOLDER}/")]
    refs = [path for path in paths if manifests_first and path.startswith(f"{root}/{REFS}/")]
    # The name of a newer manifest comes first, if the names have scheme V2.
    newer_last = sorted(manifests, reverse=True)
    others = sorted(set(paths).difference(manifests, refs))
    groups = [[newer_last[:-1], newer_last[-1:]], [others]]
    first, last = groups if manifests_first else reversed(groups)
    store.delete(refs)
    for group in first:
        store.delete(group)
    for versioned in forgotten:
        if versioned.manifest_store is not None:
            with translated(versioned.display, versioned.options):
                versioned.manifest_store.forget(versioned.object_uri)
    for group in last:
        store.delete(group)
    # Some of these folders may have lost their files in an earlier deletion.
    folders = {root, f"{root}/{TRANSACTIONS}", f"{root}/{versions.FOLDER}"}
    for path in paths:
        while (path := path.rpartition("/")[0]) and len(path) > len(root):
            folders.add(path)
    for folder in sorted(folders, key=len, reverse=True):
        store.remove_folder(folder)
