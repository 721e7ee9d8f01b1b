"""Checks that the files of a version exist below a base path."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.table.fragments.files import DataFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import DATA, DELETIONS, INDICES, LAST_LEGACY, BasePath, TablePaths


def missing_files(paths: TablePaths, manifest: Manifest, base: BasePath) -> tuple[int, list[str]]:
    """Check that the files of a version exist below a base path, by listing the folders.

    Checked are data files (also their sizes below roots of tables), deletion files and the folders
    of indexes; not files of blobs beside data files, and not objects that blobs refer to.

    Parameters
    ----------
    paths : TablePaths
        Paths that include the base path.
    manifest : Manifest
    base : BasePath
        The base path to check; the version refers to its id.

    Returns
    -------
    tuple of int and list of str
        Number of expected files, and the names of files that are missing or have another size than
        the version records.

    Raises
    ------
    CorruptTableError, StorageError
    """
    wanted: dict[str, dict[str, int]] = {DATA: {}, DELETIONS: {}, INDICES: {}}
    for fragment in manifest.fragments:
        for file in fragment.files:
            if file.base_id == base.id:
                wanted[DATA][file.path] = _size(file)
        for overlay in fragment.overlays if fragment.has_overlays else ():
            if overlay.data_file.base_id == base.id:
                wanted[DATA][overlay.data_file.path] = _size(overlay.data_file)
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id == base.id:
            wanted[DELETIONS][deletion.name(fragment.id)] = 0
    for index in indexes.section_of(manifest).indices:
        if index.HasField("base_id") and index.base_id == base.id:
            wanted[INDICES][indexes.uuid_of(index)] = 0
    missing: list[str] = []
    for folder, names in wanted.items():
        if names:
            existing = _existing(paths, base, folder)
            missing += [
                name for name, size in sorted(names.items()) if not _is_there(existing, name, size)
            ]
    return sum(map(len, wanted.values())), missing


def _is_there(existing: Mapping[str, int], name: str, size: int) -> bool:
    return name in existing and (not size or existing[name] in (0, size))


def _size(file: DataFile) -> int:
    """Return the recorded size of a data file; 0 if it does not cover the whole file."""
    return file.file_size_bytes if file.version > LAST_LEGACY else 0


def _existing(paths: TablePaths, base: BasePath, folder: str) -> dict[str, int]:
    """Return files of a folder with sizes (0 if unknown), or the folders of indexes."""
    store = paths.store_of(base)
    if not base.is_dataset_root:
        # Folders below it can hold unrelated files; only folders of indexes are listed.
        names = store.list_folders("") if folder == INDICES else store.list_names("")
        return dict.fromkeys(names, 0)
    if folder == INDICES:
        return dict.fromkeys(store.list_folders(folder), 0)
    return {info.path.removeprefix(f"{folder}/"): info.size for info in store.list_tree(folder)}
