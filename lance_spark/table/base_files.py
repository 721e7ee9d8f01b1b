"""Check that the files of a version exist below a base path."""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.table.fragments.files import DataFile
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import DATA, DELETIONS, INDICES, LAST_LEGACY, BasePath, TablePaths


def missing_files(paths: TablePaths, manifest: Manifest, base: BasePath) -> tuple[int, list[str]]:
    """Return the files of a version that are missing below a base path. Lists its folders.

    Checked are data files, deletion files and the folders of indexes. Sizes of data files are
    checked if the base path is the root of a table. Blob files beside data files, and objects that
    blobs refer to, are not checked.

    Parameters
    ----------
    paths : TablePaths
        Knows the base path.
    manifest : Manifest
    base : BasePath
        The base path, with the id that it has in the version.

    Returns
    -------
    tuple of int and list of str
        The number of files that the version has below the base path, and the names of those that
        are missing or have a size that differs from the manifest.

    Raises
    ------
    CorruptTableError, StorageError
    """
    expected: dict[str, dict[str, int]] = {DATA: {}, DELETIONS: {}, INDICES: {}}
    for fragment in manifest.fragments:
        for file in fragment.files:
            if file.base_id == base.id:
                expected[DATA][file.path] = _recorded_size(file)
        for overlay in fragment.overlays if fragment.has_overlays else ():
            if overlay.data_file.base_id == base.id:
                expected[DATA][overlay.data_file.path] = _recorded_size(overlay.data_file)
        deletion = fragment.deletion_file
        if deletion is not None and deletion.base_id == base.id:
            expected[DELETIONS][deletion.name(fragment.id)] = 0
    for index in indexes.section_of(manifest).indices:
        if index.HasField("base_id") and index.base_id == base.id:
            expected[INDICES][indexes.uuid_of(index)] = 0
    missing: list[str] = []
    for folder, names in expected.items():
        if names:
            existing = _existing_sizes(paths, base, folder)
            missing += [
                name for name, size in sorted(names.items()) if not _exists(existing, name, size)
            ]
    return sum(map(len, expected.values())), missing


def _exists(existing: Mapping[str, int], name: str, size: int) -> bool:
    return name in existing and (not size or existing[name] in (0, size))


def _recorded_size(file: DataFile) -> int:
    """Return the size of a data file as the manifest records it; 0 if it is not the whole size."""
    return file.file_size_bytes if file.version > LAST_LEGACY else 0


def _existing_sizes(paths: TablePaths, base: BasePath, folder: str) -> dict[str, int]:
    """Return the files in a folder, or the folders of indexes, with sizes; 0 = unknown size."""
    store = paths.store_of(base)
    if not base.is_dataset_root:
        # A base path that is a folder may hold folders of other programs: they are not listed.
        names = store.list_folders("") if folder == INDICES else store.list_names("")
        return dict.fromkeys(names, 0)
    if folder == INDICES:
        return dict.fromkeys(store.list_folders(folder), 0)
    return {info.path.removeprefix(f"{folder}/"): info.size for info in store.list_tree(folder)}
