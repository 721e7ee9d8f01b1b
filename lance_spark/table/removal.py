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

    Parameters
    ----------
    store : ObjectStore
        The paths are relative to its root.
    root : str
        Folder of the table or branch. The folders above it stay.
    paths : sequence of str
    forgotten : iterable of ObjectStore
        The roots whose entries are deleted.
    manifests_first : bool
        If true, no version lacks files at any time. Tags and branches are deleted before the
        manifests: a table that is created at the path after an interruption would have them. If
        false, what is left after an interruption can be recognised as a table. Newer manifests are
        deleted after older manifests.
    """
    manifests = [path for path in paths if path.startswith(f"{root}/{versions.FOLDER}/")]
    refs = [path for path in paths if manifests_first and path.startswith(f"{root}/{REFS}/")]
    groups = [sorted(manifests, reverse=True), sorted(set(paths).difference(manifests, refs))]
    first, last = groups if manifests_first else reversed(groups)
    store.delete(refs)
    store.delete(first)
    for versioned in forgotten:
        if versioned.manifest_store is not None:
            with translated(versioned.display, versioned.options):
                versioned.manifest_store.forget(versioned.object_uri)
    store.delete(last)
    # Some of these folders may have lost their files in an earlier deletion.
    folders = {root, f"{root}/{TRANSACTIONS}", f"{root}/{versions.FOLDER}"}
    for path in paths:
        while (path := path.rpartition("/")[0]) and len(path) > len(root):
            folders.add(path)
    for folder in sorted(folders, key=len, reverse=True):
        store.remove_folder(folder)
