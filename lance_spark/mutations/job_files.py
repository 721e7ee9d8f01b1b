"""Files of a job that came to nothing: of a task that ran twice, was killed, or whose job failed.

All files that the tasks of one job write carry its tag, and nothing but the commit refers to them.

| file | where the tag is |
| --- | --- |
| data file, folder of its blobs | the last 6 bytes of the UUID that names it |
| deletion file | its first 5 bytes are the highest of the id that ends the name |
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import join
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import TAG_BYTES, delete_fragments, written_by
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import DATA, DELETIONS
from lance_spark.table.rows.deletion_writer import has_tag


def new_tag() -> bytes:
    """Return what no other job has."""
    return secrets.token_bytes(TAG_BYTES)


@contextmanager
def aborted_on_error(abort: Callable[[], object]) -> Iterator[None]:
    """Have a task that fails delete what it wrote; what fails of that is left to the sweep, and the
    task's own error is raised.
    """
    try:
        yield
    except BaseException:
        with suppress(Exception):
            abort()
        raise


def sweep(
    table: OpenTable,
    tag: bytes,
    kept: Manifest | Iterable[Manifest] | None = None,
    *,
    targets: Sequence[int | None] = (None,),
) -> int:
    """Delete the files of a job that no version refers to. Lists the data files and the deletion
    files.

    Parameters
    ----------
    table : OpenTable
        At a version with the base paths that were written to.
    tag : bytes
        Of the job.
    kept : Manifest or iterable of Manifest, optional
        Versions whose files stay: those that the job committed.
    targets : sequence of int or None
        Ids of the base paths that data files went to; None for the table itself.

    Returns
    -------
    int
        How many files it deleted, blobs not counted.

    Raises
    ------
    ValueError
        The tag is too short: files of others could carry it.
    StorageError
    """
    if len(tag) != TAG_BYTES:
        raise ValueError(f"a tag has {TAG_BYTES} bytes, not {len(tag)}")
    manifests = [kept] if isinstance(kept, Manifest) else list(kept or ())
    fragments = [fragment for manifest in manifests for fragment in manifest.fragments]
    data = {(file.base_id, file.path) for fragment in fragments for file in fragment.files}
    deletions = {
        fragment.deletion_file.name(fragment.id)
        for fragment in fragments
        if fragment.deletion_file is not None
    }
    count = 0
    for target in targets:
        store, path = table.paths.locate(target, DATA, "x")
        folder = path.rpartition("/")[0]
        # A folder of blobs can be there without its data file, which is closed after them.
        result = {*written_by(store.list_names(folder), tag)}
        result |= {f"{name}.lance" for name in written_by(store.list_folders(folder), tag)}
        gone = [name for name in sorted(result) if (target, name) not in data]
        files = tuple(DataFile(name, (), (), 0, 0, 0, target) for name in gone)
        delete_fragments(table.paths, [Fragment(0, files, 0)])
        count += len(gone)
    return count + _sweep_deletions(table.store, tag, deletions)


def _sweep_deletions(store: ObjectStore, tag: bytes, kept: set[str]) -> int:
    names = [name for name in store.list_names(DELETIONS) if has_tag(name, tag)]
    gone = [name for name in names if name not in kept]
    store.delete([join(DELETIONS, name) for name in gone])
    return len(gone)
