"""Lists of files: those below the root of a table, and those that its versions refer to."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import pyarrow as pa

from lance_spark.storage.listing import FileInfo
from lance_spark.storage.parallel import call_all, read_all, read_each
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.indexes.sections import parse_section, uuid_of
from lance_spark.table.manifest.codec import find_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import ManifestLocation, list_manifests
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import DATA, DELETIONS, INDICES, TablePaths

_ALL_FILES = pa.schema(
    [
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("last_modified", pa.timestamp("us", "UTC")),
    ]
)
_TRACKED_FILES = pa.schema(
    [
        pa.field("version", pa.int64(), nullable=False),
        pa.field("base_uri", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("type", pa.dictionary(pa.int8(), pa.string()), nullable=False),
    ]
)
#: Root or base path, path below it, type.
_File = tuple[str, str, str]
_Progress = Callable[[int, int | None], object]


def all_files(store: ObjectStore) -> pa.RecordBatchReader:
    """Return all files below a root; see `Dataset.all_files`."""
    files = files_below(store)
    times = [_time(file.modified) for file in files]
    columns = [
        _repeated(store.display, len(files), pa.int32()),
        pa.array([file.path for file in files], pa.string()),
        pa.array([file.size for file in files], pa.int64()),
        pa.array(times, pa.timestamp("us", "UTC")),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=_ALL_FILES)
    return pa.RecordBatchReader.from_batches(_ALL_FILES, [batch])


def files_below(store: ObjectStore) -> list[FileInfo]:
    """Return the files below the root of a table at any depth. Raises StorageError."""
    listed, folders = call_all(
        (partial(store.list, ""), partial(store.list_folders, "")), local=store.is_local
    )
    times = read_all(store.modified, [name for name, _ in listed], local=store.is_local)
    trees = read_all(store.list_tree, folders, local=store.is_local)
    files = [FileInfo(name, size, time) for (name, size), time in zip(listed, times, strict=True)]
    return [*files, *chain.from_iterable(trees)]


def tracked_files(
    table: OpenTable, min_version: int | None, progress: _Progress | None
) -> pa.RecordBatchReader:
    """Return the files that versions refer to; see `Dataset.tracked_files`."""
    return pa.RecordBatchReader.from_batches(
        _TRACKED_FILES, _tracked_batches(table, min_version or 0, progress)
    )


def _tracked_batches(
    table: OpenTable, min_version: int, progress: _Progress | None
) -> Iterator[pa.RecordBatch]:
    store = table.store
    locations = [location for location in list_manifests(store) if location.version >= min_version]
    indexes: dict[tuple[int | None, str], list[str]] = {}
    manifests = read_each(partial(find_manifest, store), locations, local=store.is_local)
    for number, (location, manifest) in enumerate(zip(locations, manifests, strict=True), 1):
        # Cleanup may have removed the version meanwhile.
        if manifest is not None:
            yield _tracked_batch(table.paths, location, manifest, indexes)
        if progress is not None:
            progress(number, len(locations))


def _tracked_batch(
    paths: TablePaths,
    location: ManifestLocation,
    manifest: Manifest,
    indexes: dict[tuple[int | None, str], list[str]],
) -> pa.RecordBatch:
    located = paths.with_bases(manifest.base_paths)
    files = list(_files_of(located, location, manifest, indexes))
    bases, names, types = zip(*files, strict=True)
    columns = [
        pa.array([manifest.version] * len(files), pa.int64()),
        pa.array(bases, pa.string()).dictionary_encode().cast(_TRACKED_FILES.field(1).type),
        pa.array(names, pa.string()),
        pa.array(types, pa.string()).dictionary_encode().cast(_TRACKED_FILES.field(3).type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_TRACKED_FILES)


def _files_of(
    paths: TablePaths,
    location: ManifestLocation,
    manifest: Manifest,
    indexes: dict[tuple[int | None, str], list[str]],
) -> Iterator[_File]:
    root = paths.store.display
    yield root, location.path, "manifest"
    if manifest.transaction_file is not None:
        yield root, f"{TRANSACTIONS}/{manifest.transaction_file}", "transaction file"
    for fragment in manifest.fragments:
        for file in fragment.files:
            yield *_located(paths, file.base_id, DATA, file.path), "data file"
        for overlay in fragment.overlays:
            data = overlay.data_file
            yield *_located(paths, data.base_id, DATA, data.path), "data file"
        deletion = fragment.deletion_file
        if deletion is not None:
            name = deletion.name(fragment.id)
            yield *_located(paths, deletion.base_id, DELETIONS, name), "deletion file"
    for index in parse_section(manifest.index_section, manifest.name).indices:
        base = index.base_id if index.HasField("base_id") else None
        key = base, uuid_of(index)
        if key not in indexes:
            store, folder = paths.locate(base, INDICES, key[1])
            indexes[key] = [file.path for file in store.list_tree(folder)]
        uri = _located(paths, base, INDICES, "")[0]
        yield from ((uri, path, "index file") for path in indexes[key])


def _located(paths: TablePaths, base_id: int | None, folder: str, name: str) -> tuple[str, str]:
    store, path = paths.locate(base_id, folder, name)
    return store.display, path


def _time(seconds: float | None) -> datetime.datetime | None:
    return None if seconds is None else datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def _repeated(text: str, count: int, index: pa.DataType) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, index), pa.array([text]))
