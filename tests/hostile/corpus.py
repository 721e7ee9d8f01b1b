"""Small sound files, from which damaged inputs are made.

Tables come out of an archive, `python -m tests.hostile.corpus` writes it anew; data files are
written here.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import random
import shutil
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter
from pyroaring import BitMap

import lance_spark
from lance_spark.json import jsonb
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.indexes import fragment_reuse
from lance_spark.table.manifest.codec import decode, encode
from tests.encoding.v2_0.test_columns import CASES as CASES_2_0
from tests.encoding.v2_0.test_columns import UNREADABLE
from tests.encoding.v2_1.test_hostile import CASES as CASES_2_1
from tests.encoding.v2_3.test_hostile import CASES as CASES_2_3
from tests.hostile import rare
from tests.support.interop.blobs import marked, random_values
from tests.support.interop.blobs import table as blob_table

TABLES = Path(__file__).parent / "tables.tar.xz"
RELEASES = Path(__file__).parents[1] / "fixtures" / "releases"
VECTORS = Path(__file__).parents[1] / "fixtures" / "vectors"
#: Seeds are small, so that each change matters: columns of wide values have fewer rows.
LARGEST = 40_000
_FEWER_ROWS = (400, 100, 25, 6)
#: Rows of each fragment of the tables of `tests.hostile.takes`.
TAKEN_ROWS = 90


@functools.cache
def folder() -> Path:
    """Return a folder that lasts as long as the process; it is in memory if the machine has
    /dev/shm.
    """
    shared = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="hostile-", dir=shared if shared.is_dir() else None))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def _written(array: pa.Array, metadata: dict[str, str] | None, version: str) -> bytes:
    field = pa.field("c", array.type, metadata=metadata or None)
    path = folder() / "file.lance"
    with LanceFileWriter(str(path), pa.schema([field]), version=version) as writer:
        writer.write_batch(pa.record_batch([array], schema=pa.schema([field])))
    return path.read_bytes()


@functools.cache
def files(version: str) -> tuple[bytes, ...]:
    """Return data files of a version, one for each of its encodings and more."""
    if version == "0.1":
        return (*_released("0.1"), *_ours("0.1"))
    if version == "2.0":
        cases = [case for name, case in CASES_2_0.items() if name not in UNREADABLE]
    elif version == "2.3":
        cases = [case() for case in CASES_2_3.values()]
        cases += [case() for _, case in CASES_2_1.values()]
    else:
        cases = [case() for case_version, case in CASES_2_1.values() if case_version <= version]
    result = [_small(*case, version) for case in cases]
    if version == "2.0":
        result += [*_released("2.0"), *rare.files_2_0(folder())]
    if version == "2.3":
        result.append(_written(*rare.indexed(), version))
    else:
        result += _ours(version)
    return tuple(result)


def _small(array: pa.Array, metadata: dict[str, str] | None, version: str) -> bytes:
    """Write the first rows of a column: as many as fit a small file."""
    result = b""
    for rows in (len(array), *_FEWER_ROWS):
        result = _written(array[:rows], metadata, version)
        if len(result) < LARGEST:
            break
    return result


def _released(version: str) -> Iterator[bytes]:
    """Yield data files that old releases wrote."""
    for release in ("0.4.21", "0.8.21", "0.12.3", "0.17.0", "11.0.0"):
        with tarfile.open(RELEASES / f"{release}.tar.xz") as archive:
            for member in archive:
                parts = member.name.split("/")
                if f"_{version}" in parts[0] and parts[-2:-1] == ["data"] and member.isfile():
                    opened = archive.extractfile(member)
                    assert opened is not None
                    data = opened.read()
                    if len(data) < LARGEST:
                        yield data


def _ours(version: str) -> list[bytes]:
    """Return files that this package wrote: one file of many types, and one file for each type."""
    plain = early_rows(0, 200) if version == "0.1" else many_types(200)
    path = folder() / f"ours-{version}"
    result = []
    for item in (plain, *(plain.select([name]) for name in plain.column_names)):
        lance_spark.write_dataset(item, str(path), data_storage_version=version)
        result += [file.read_bytes() for file in (path / "data").glob("*.lance")]
        shutil.rmtree(path)
    return result


def many_types(rows: int) -> pa.Table:
    """Return rows of many types."""
    numbers = np.arange(rows)
    mask = numbers % 7 == 0
    text = pa.array([f"word {n % 11}" for n in numbers], mask=mask)
    objects = [json.dumps({"n": [int(n), None, {"x": "y"}]}) for n in numbers]
    jsons = pa.array([None if n % 7 == 0 else objects[n] for n in numbers], pa.json_())
    ends = np.minimum(np.arange(rows + 1) * 2, rows).astype(np.int32)
    return pa.table(
        {
            "i": pa.array(numbers, mask=mask),
            "f": pa.array(numbers * 0.5),
            "s": text,
            "b": pa.array([bytes([n % 250]) * (n % 9) for n in numbers]),
            "t": pa.array(numbers, pa.timestamp("us", "UTC")),
            "d": pa.array(numbers.astype(np.int32)).cast(pa.date32()),
            "m": pa.array(numbers).cast(pa.decimal256(50, 3)),
            "h": pa.array(numbers.astype(np.float16)),
            "x": pa.array([bytes([n % 7]) * 3 for n in numbers], pa.binary(3)),
            "k": text.dictionary_encode(),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 4) * 1.0), 4),
            "l": pa.array([list(range(n % 4)) for n in numbers]),
            "r": pa.array([{"a": int(n), "b": f"{n}"} for n in numbers]),
            "n": pa.nulls(rows, pa.int32()),
            "one": pa.array([7] * rows),
            "j": jsons,
            "jl": pa.ListArray.from_arrays(pa.array(ends), jsons),
            "js": pa.StructArray.from_arrays([jsons, text], ["j", "s"]),
        }
    )


def early_rows(start: int, count: int) -> pa.Table:
    """Return rows that version 0.1 can store, of every encoding of it: only strings, and items
    of lists, are null.
    """
    numbers = np.arange(start, start + count)
    text = pa.array([f"w{n}" for n in numbers], mask=numbers % 7 == 0)
    keys = pa.array(numbers % 11, pa.int8())
    words = pa.array([f"word {n}" for n in range(11)])
    return pa.table(
        {
            "i": numbers,
            "s": text,
            "f": np.where(numbers % 50 == 0, np.nan, numbers * 0.5),
            "z": numbers % 3 == 0,
            "d": pa.array(numbers.astype(np.int32)).cast(pa.date32()),
            "m": pa.array(numbers).cast(pa.decimal128(22, 2)),
            "k": pa.DictionaryArray.from_arrays(keys, words),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(count * 4) * 1.0), 4),
            "l": pa.array([list(range(n % 4)) for n in numbers]),
            "r": pa.array([{"a": int(n), "b": f"{n}"} for n in numbers]),
        }
    )


def rows(start: int, count: int = 6) -> pa.Table:
    """Return rows of the tables."""
    ids = range(start, start + count)
    return pa.table({"i": pa.array(ids, pa.int64()), "s": [f"w{at}" for at in ids]})


@functools.cache
def table(name: str) -> Path:
    """Return one of the tables that `write_tables` made."""
    path = folder() / "tables"
    if not path.is_dir():
        with tarfile.open(TABLES) as archive:
            archive.extractall(path, filter="data")
    if name == "legacy" and not (path / name).exists():
        _unpack(RELEASES / "0.8.21.tar.xz", "dictionaries_0.1/table.lance", path / name)
    if name.startswith("vectors ") and not (path / name).exists():
        _, release, released_name = name.split()
        _unpack(VECTORS / f"{release}.tar.xz", f"{released_name}/table.lance", path / name)
    if name == "early" and not (path / name).exists():
        new = str(path / name / "t")
        lance_spark.write_dataset(early_rows(0, 1_300), new, data_storage_version="0.1")
        lance_spark.write_dataset(early_rows(1_300, 100), new, mode="append")
        lance_spark.open_dataset(new).delete([("i", "in", [5, 1_310])])
    if name.startswith("taken ") and not (path / name).exists():
        _taken(path / name / "t", name.split()[1])
    if name == "reused" and not (path / name).exists():
        shutil.copytree(path / "moved", path / name)
        _reused(path / name / "t")
    if name == "patched" and not (path / name).exists():
        shutil.copytree(path / "stable", path / name)
        _patched(path / name / "t")
    return path / name / "t"


def _taken(path: Path, version: str) -> None:
    """Fragments of few rows of many types."""
    # This package does not write version 2.3.
    write = lance.write_dataset if version == "2.3" else lance_spark.write_dataset
    data = many_types(4 * TAKEN_ROWS)
    write(data, str(path), data_storage_version=version, max_rows_per_file=TAKEN_ROWS)
    without_sizes(path)


def _unpack(archive_path: Path, folder_name: str, target: Path) -> None:
    """Unpack a table of an old release."""
    with tarfile.open(archive_path) as archive:
        members = [item for item in archive if item.name.startswith(f"{folder_name}/")]
        archive.extractall(target / "released", members, filter="data")
    (target / "released" / folder_name).rename(target / "t")


def _reused(path: Path) -> None:
    """Put the fragment reuse index into a file of its own, as writers do with large indexes."""
    file = newest(path)
    manifest = decode(file.read_bytes(), "m")
    section = table_pb2.IndexSection.FromString(manifest.index_section or b"")
    entry = fragment_reuse.find_entry(section)
    assert entry is not None
    details = table_pb2.FragmentReuseIndexDetails.FromString(entry.index_details.value)
    content = details.inline.SerializeToString()
    details.external.path = fragment_reuse.DETAILS_FILE
    details.external.size = len(content)
    entry.index_details.value = details.SerializeToString()
    written = path / "_indices" / str(uuid.UUID(bytes=entry.uuid.uuid)) / details.external.path
    written.parent.mkdir()
    written.write_bytes(content)
    section_bytes = section.SerializeToString()
    file.write_bytes(encode(manifest.to_proto(), section_bytes, manifest.transaction_section))


def _patched(path: Path) -> None:
    """Add a version in which a row got a new value in place, with a data file whose name is
    fixed.
    """
    file = newest(path)
    manifest = decode(file.read_bytes(), "m")
    proto = manifest.to_proto()
    proto.version += 1
    changed = proto.fragments[1]
    (data,) = changed.files
    shutil.copy(path / "data" / data.path, path / "data" / "patched.lance")
    data.path = "patched.lance"
    done = transaction_pb2.Transaction(read_version=proto.version - 1, uuid="u")
    done.update.updated_fragments.append(changed)
    done.update.fields_modified.append(data.fields[-1])
    done.update.update_mode = transaction_pb2.Transaction.REWRITE_COLUMNS
    done.update.updated_fragment_offset_bitmaps[changed.id] = BitMap([1]).serialize()
    written = encode(proto, manifest.index_section, done.SerializeToString())
    file.with_name(f"{2**64 - 1 - proto.version}.manifest").write_bytes(written)


def write_tables() -> None:
    """Write the tables into their archive; those that it has stay as they are.

    Names of files have to be the same wherever a damaged one is read again.
    """
    # These modules of tests import this one.
    from tests.hostile import index_files, mem_wal_tables

    path = folder() / "tables"
    if TABLES.exists():
        table("")
    makers: dict[str, Callable[[Path], None]] = {
        "plain": partial(_plain, stable=False),
        "stable": partial(_plain, stable=True),
        "old": _old,
        "moved": _moved,
        "indexed": _indexed,
        "filtered": _filtered,
        "overlaid": _overlaid,
        "spread": _spread,
        "fresh": mem_wal_tables.write_fresh,
        "blobs_2_0": partial(_blobs, version="2.0"),
        "blobs_2_1": partial(_blobs, version="2.1"),
        "blobs_2_2": partial(_blobs, version="2.2"),
        **index_files.TABLES,
    }
    for name, make in makers.items():
        if not (path / name).exists():
            make(path / name / "t")
    with tarfile.open(TABLES, "w:xz") as archive:
        for entry in sorted(path.iterdir()):
            archive.add(entry, entry.name)


def _plain(path: Path, *, stable: bool) -> None:
    """Both kinds of deletion files, indexes, configuration, a tag and a branch."""
    uri = str(path)
    dataset = lance.write_dataset(rows(0), uri, max_rows_per_file=3, enable_stable_row_ids=stable)
    dataset = lance.write_dataset(rows(100, 12_000), uri, mode="append")
    dataset.delete("i = 1 or (i >= 100 and i < 6000)")
    dataset.create_scalar_index("i", "BTREE")
    dataset.create_scalar_index("s", "ZONEMAP")
    dataset.update_config({"a": "b"})
    dataset.tags.create("t", 2)
    dataset.create_branch("b", 3)
    lance.write_dataset(rows(1_000), uri, mode="append")
    without_sizes(path)


def _old(path: Path) -> None:
    """Transactions only in files, as early releases wrote them."""
    dataset = lance.write_dataset(rows(0), str(path), max_rows_per_file=3)
    dataset.create_scalar_index("i", "BTREE")
    dataset.delete("i = 1")
    lance.write_dataset(rows(10), str(path), mode="append")
    for manifest in (path / "_versions").glob("*.manifest"):
        result = decode(manifest.read_bytes(), "m")
        manifest.write_bytes(encode(result.to_proto(), result.index_section, None))


def _moved(path: Path) -> None:
    """A fragment reuse index."""
    dataset = lance.write_dataset(rows(0, 60), str(path), max_rows_per_file=10)
    dataset.create_scalar_index("i", "BTREE")
    dataset.optimize.compact_files(defer_index_remap=True)


def _indexed(path: Path) -> None:
    """Indexes that cover all fragments."""
    dataset = lance.write_dataset(rows(0, 9_000), str(path), max_rows_per_file=3_000)
    dataset.create_scalar_index("i", "BTREE")
    dataset.create_scalar_index("s", "ZONEMAP")


def _filtered(path: Path) -> None:
    """Bloom filters of less than a kilobyte."""
    lance.write_dataset(rows(0, 9_000), str(path), max_rows_per_file=3_000)
    lance_spark.open_dataset(str(path)).create_scalar_index(
        "i", "BLOOMFILTER", number_of_items=1000, probability=0.1
    )


def _overlaid(path: Path) -> None:
    """New values for single cells."""
    os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"] = "1"
    # This module of tests imports packages that readers of its tables do not need.
    from tests.interop.test_overlays import KINDS, commit, overlay, some_rows

    chance = random.Random(1)
    lance.write_dataset(some_rows(0, 40, chance), str(path), max_rows_per_file=20)
    for number, names in enumerate((["number", "word"], ["items"], ["point"])):
        values = some_rows(100, 5, chance).select(names)
        assert values.schema.names == [name for name in KINDS.names if name in names]
        commit(path, number % 2, overlay(path, f"o{number}.lance", values, [1, 3, 7, 8, 19]))
    without_sizes(path)


def _spread(path: Path) -> None:
    """A struct whose children are in several files, and one that some rows lack; few rows in
    each fragment.
    """
    point = pa.struct([("a", pa.int64()), ("b", pa.string())])
    values = [None if at % 4 == 3 else {"a": at, "b": f"w{at}"} for at in range(40)]
    data = pa.table({"i": pa.array(range(40), pa.int64()), "p": pa.array(values, point)})
    dataset = lance.write_dataset(data, str(path), max_rows_per_file=8)
    dataset.add_columns(pa.field("p", pa.struct([("c", pa.int32())])))
    handle = lance_spark.open_dataset(str(path))
    handle = handle.alter_columns({"path": "p.a", "data_type": pa.int32()})
    handle = handle.add_columns({"word": "x", "none": pa.scalar(None, pa.float64())})
    handle.alter_columns({"path": "p.c", "data_type": pa.int64()})
    without_sizes(path)


def _blobs(path: Path, version: str) -> None:
    values = [None if item is None else item[:900] for item in random_values(40)]
    data = blob_table(marked(values))
    lance_spark.write_dataset(data, str(path), data_storage_version=version)
    without_sizes(path)


def without_sizes(path: Path) -> None:
    """Let the newest manifest say no sizes of files, so that files of other lengths are looked
    into.
    """
    file = newest(path)
    manifest = decode(file.read_bytes(), "m")
    proto = manifest.to_proto()
    for fragment in proto.fragments:
        for file_message in fragment.files:
            file_message.ClearField("file_size_bytes")
    file.write_bytes(encode(proto, manifest.index_section, manifest.transaction_section))


def newest(path: Path) -> Path:
    """Return the newest manifest of a table."""
    return min(
        manifest_path
        for manifest_path in (path / "_versions").glob("*.manifest")
        if manifest_path.name[0] != "d"
    )


def json_values() -> list[bytes]:
    """Return values of JSONB."""
    deep: Any = 1
    for _ in range(30):
        deep = {"a": [deep]}
    some: list[Any] = [None, True, 7, -(2**40), 2**63, 1.5, "text", [], {}, {"a": [1, {"b": "c"}]}]
    return [jsonb.encode(json.dumps(item)) for item in [*some, deep, list(range(100))]]


if __name__ == "__main__":
    write_tables()
