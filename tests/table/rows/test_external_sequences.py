"""Row ids and versions of rows that stand in another file: all is as in the same table with the bytes in its manifest.

No release of pylance writes such tables, or reads them any more, so that tables of pylance are changed into some here: the
bytes of the sequences, unchanged, become ranges of one file.
"""

from __future__ import annotations

import datetime
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.file import LanceFileWriter
from pyroaring import BitMap

import lance_spark
from lance_spark import Dataset, open_dataset
from lance_spark.errors import CorruptTableError, LanceError, MissingFileError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import encode, read_manifest
from lance_spark.table.manifest.versions import list_manifests
from lance_spark.table.operations.columns import DataOverlay
from tests.support.tables.lineage import lived_in, rows

#: Random row id sequences in separate files.
pytestmark = pytest.mark.slow

ABOUT = ["_rowid", "_rowaddr", "_row_created_at_version", "_row_last_updated_at_version"]
SEQUENCES = ("row_ids", "created_at_versions", "last_updated_at_versions")
FILE = "_sequences/all.bin"


def newest(path: Path) -> table_pb2.Manifest:
    store = ObjectStore.from_uri(path)
    return read_manifest(store, list_manifests(store)[-1]).to_proto()


def rewrite(path: Path, change: Callable[[table_pb2.Manifest], None]) -> None:
    """Rewrite the newest manifest of a table."""
    store = ObjectStore.from_uri(path)
    location = list_manifests(store)[-1]
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    change(proto)
    data = encode(proto, manifest.index_section, manifest.transaction_section)
    (path / location.path).write_bytes(data)


def externals(proto: table_pb2.Manifest) -> Iterator[table_pb2.ExternalFile]:
    for fragment in proto.fragments:
        for name in SEQUENCES:
            if fragment.HasField(f"external_{name}"):
                yield getattr(fragment, f"external_{name}")


def move_out(path: Path, file: str = FILE) -> None:
    """Move all sequences of the newest version to one file, with other bytes before each."""
    data = bytearray()

    def move(proto: table_pb2.Manifest) -> None:
        for fragment in proto.fragments:
            for name in SEQUENCES:
                content = getattr(fragment, f"inline_{name}")
                assert content
                data.extend(b"\xff" * 5)
                external = getattr(fragment, f"external_{name}")
                external.path, external.offset, external.size = file, len(data), len(content)
                data.extend(content)
                assert not fragment.HasField(f"inline_{name}")

    rewrite(path, move)
    (path / file).parent.mkdir(exist_ok=True)
    (path / file).write_bytes(data)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose rows have moved, with an index, and deletions, in several fragments."""
    path = tmp_path_factory.mktemp("template") / "t"
    lived_in(path).create_scalar_index("id", "BTREE")
    lance.write_dataset(rows(300, 340), str(path), mode="append", max_rows_per_file=20)
    lance.dataset(str(path)).delete("id in (301, 302, 330)")
    return path


@pytest.fixture
def pair(template: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The table as pylance wrote it, and the same table with its sequences in a file."""
    plain, moved = tmp_path / "plain", tmp_path / "moved"
    for path in (plain, moved):
        shutil.copytree(template, path)
    move_out(moved)
    count = len(newest(moved).fragments)
    assert count > 3
    assert len(list(externals(newest(moved)))) == 3 * count
    return plain, moved


def content(path: Path) -> pa.Table:
    return open_dataset(str(path)).to_table(["id", "s", *ABOUT]).combine_chunks()


def same(plain: Path, moved: Path) -> None:
    """Compare full reads and takes by row id of both tables."""
    expected = content(plain)
    assert expected == content(moved)
    by_id = lance.dataset(str(plain)).to_table(columns=["id", "s", *ABOUT])
    assert expected == by_id.combine_chunks()
    some = expected["_rowid"].to_pylist()[::-3]
    dataset = open_dataset(str(moved))
    taken = dataset.take_rows(some, ["id", *ABOUT])
    assert taken["_rowid"].to_pylist() == some
    assert taken == open_dataset(str(plain)).take_rows(some, ["id", *ABOUT])
    assert dataset.take([5, 0, 90], ABOUT) == open_dataset(str(plain)).take([5, 0, 90], ABOUT)


def test_external_sequences_are_read(pair: tuple[Path, Path]) -> None:
    plain, moved = pair
    same(plain, moved)
    assert len(set(content(moved)["_row_created_at_version"].to_pylist())) > 3
    tasks = open_dataset(str(moved)).plan(["id", *ABOUT], rows_per_task=7)
    assert len(tasks) > 10
    batches = [batch for task in tasks for batch in pickle.loads(pickle.dumps(task)).batches()]
    assert pa.Table.from_batches(batches).combine_chunks() == content(plain).drop_columns(["s"])
    wanted = [("_row_created_at_version", ">", 2), ("id", "<", 250)]
    table = [open_dataset(str(item)).to_table(ABOUT, filters=wanted) for item in pair]
    assert table[0].num_rows
    assert table[0].combine_chunks() == table[1].combine_chunks()


def test_reads_without_lineage_do_not_open_the_file(pair: tuple[Path, Path]) -> None:
    (pair[1] / FILE).unlink()
    tables = [open_dataset(str(item)).to_table(["_rowaddr", "s"]).combine_chunks() for item in pair]
    assert tables[0] == tables[1]


def overlay(path: Path) -> None:
    """Overlay two rows of the first fragment with new values."""
    file = path / "data" / "overlay.lance"
    with LanceFileWriter(str(file), pa.schema([("s", pa.string())]), version="2.2") as writer:
        writer.write_batch(pa.table({"s": ["o1", "o2"]}))
    group = transaction_pb2.Transaction.DataOverlayGroup(fragment_id=newest(path).fragments[0].id)
    overlay_message = group.overlays.add(shared_offset_bitmap=BitMap([1, 4]).serialize())
    overlay_message.data_file.CopyFrom(
        table_pb2.DataFile(
            path=file.name,
            fields=[1],
            column_indices=[0],
            file_major_version=2,
            file_minor_version=2,
        )
    )
    Dataset.commit(str(path), DataOverlay((group,)), at(path).version)


def at(path: Path) -> Dataset:
    return open_dataset(str(path))


CHANGES: dict[str, Callable[[Path], Any]] = {
    "append": lambda path: lance_spark.write_dataset(rows(400, 410), str(path), mode="append"),
    "overwrite": lambda path: lance_spark.write_dataset(
        rows(0, 99), str(path), mode="overwrite", max_rows_per_file=50
    ),
    "delete": lambda path: at(path).delete([("id", "in", [3, 115, 303, 339])]),
    "delete by row id": lambda path: at(path).delete(
        ids=content(path)["_rowid"].to_pylist()[1:90:4]
    ),
    "update rows": lambda path: at(path).update({"s": "x"}, [("id", "in", [4, 110, 305])]),
    "update columns": lambda path: at(path).update(
        {"s": "x"}, [("id", "in", [4, 110, 305])], mode="columns"
    ),
    "update all": lambda path: at(path).update(
        {"id": lambda r: pc.add(r["id"], 1)}, mode="columns"
    ),
    "compact": lambda path: at(path).compact_files(target_rows_per_fragment=1_000),
    "add columns": lambda path: at(path).add_columns({"more": "id + 1"}),
    "drop columns": lambda path: at(path).add_columns({"m": "id"}).drop_columns(["m"]),
    "restore": lambda path: at(path).delete([("id", "<", 300)]).checkout_version(
        at(path).version - 1
    ).restore(),
}  # fmt: skip


@pytest.mark.sample(5)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_tables_with_external_sequences(
    pair: tuple[Path, Path], change: Callable[[Path], Any]
) -> None:
    for path in pair:
        change(path)
    same(*pair)
    # A second change of the rewritten rows is correct as well.
    for path in pair:
        dataset = at(path).update({"s": "again"}, [("id", ">", 30)], mode="columns")
        dataset = dataset.update({"s": "y"}, [("id", "in", [7, 98])])
        dataset.compact_files(target_rows_per_fragment=1_000)
    same(*pair)


def test_replaced_cells_get_new_versions(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES", "1")
    for path in pair:
        overlay(path)
    same(*pair)
    assert content(pair[1])["s"].to_pylist().count("o1") == 1


def test_unchanged_sequences_stay_external(pair: tuple[Path, Path]) -> None:
    _, moved = pair
    before = {fragment.id: fragment for fragment in newest(moved).fragments}
    at(moved).update({"s": "x"}, [("id", "in", [305])], mode="columns")
    kept = 0
    for fragment in newest(moved).fragments:
        assert fragment.external_row_ids == before[fragment.id].external_row_ids
        assert fragment.external_created_at_versions.size
        kept += fragment.HasField("external_last_updated_at_versions")
    assert kept == len(before) - 1


@pytest.mark.parametrize("method", ["shallow_clone", "deep_clone", "branch"])
def test_clones_store_external_sequences_inline(
    pair: tuple[Path, Path], tmp_path: Path, method: str
) -> None:
    clones = []
    for path in pair:
        if method == "branch":
            clones.append(Path(at(path).create_branch("b").uri))
        else:
            clones.append(tmp_path / f"{path.name}-{method}")
            getattr(at(path), method)(str(clones[-1]))
    assert not list(externals(newest(clones[1])))
    same(*clones)
    (pair[1] / FILE).unlink()
    same(*clones)
    for path in clones:
        at(path).update({"s": "x"}, [("id", "in", [4, 110, 305])])
    same(*clones)


#: In folders where cleanup lists nothing, data, deletion files, files beside a data file, files of indexes, temporary files.
PLACES = [
    FILE,
    "data/sequences.lance",
    "_deletions/sequences.bin",
    "data/stem/00.blob",
    "_indices/0b8f9aa4-bd2c-4a4c-9b3c-0d9a4ba3ff05/sequences",
    "data/.tmpSequences",
]


@pytest.mark.parametrize("place", PLACES)
def test_cleanup_keeps_files_with_sequences(template: Path, tmp_path: Path, place: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(template, path)
    move_out(path, place)
    os.utime(path / place, (0, 0))
    expected = content(path)
    at(path).tags.create("kept", at(path).version)
    at(path).compact_files(target_rows_per_fragment=1_000)
    assert not list(externals(newest(path)))
    older = datetime.timedelta(0)
    options: dict[str, Any] = {"older_than": older, "delete_unverified": True}
    at(path).cleanup_old_versions(error_if_tagged_old_versions=False, **options)
    assert at(path).checkout_version("kept").to_table(["id", "s", *ABOUT]) == expected
    at(path).tags.delete("kept")
    at(path).cleanup_old_versions(**options)
    # Files of other programs are left alone.
    assert (path / place).exists() == (place == FILE)
    assert content(path).num_rows == expected.num_rows


def set_first(**values: Any) -> Callable[[table_pb2.Manifest], None]:
    def change(proto: table_pb2.Manifest) -> None:
        for fragment in proto.fragments:
            for name in SEQUENCES:
                external = getattr(fragment, f"external_{name}")
                for key, value in values.items():
                    setattr(external, key, value)

    return change


HOSTILE: list[tuple[dict[str, Any], type[LanceError], str]] = [
    ({"size": 2**60}, CorruptTableError, FILE),
    ({"size": 2**64 - 1, "offset": 2**64 - 1}, CorruptTableError, FILE),
    ({"offset": 10**6}, CorruptTableError, FILE),
    ({"offset": 2**64 - 1}, CorruptTableError, FILE),
    # Bytes that are not a message, or not a sequence of so many rows.
    ({"offset": 0}, CorruptTableError, FILE),
    ({"size": 0}, CorruptTableError, FILE),
    ({"path": "_sequences/none.bin"}, MissingFileError, "_sequences/none.bin"),
    ({"path": "_sequences"}, LanceError, "_sequences"),
    ({"path": "../plain/" + FILE}, CorruptTableError, "../plain/" + FILE),
    ({"path": "a/../../plain/" + FILE}, CorruptTableError, "a/../../plain/" + FILE),
    ({"path": "/etc/passwd"}, CorruptTableError, "/etc/passwd"),
    ({"path": "file:///etc/passwd"}, CorruptTableError, "file:///etc/passwd"),
    ({"path": ""}, CorruptTableError, "external file ''"),
]


@pytest.mark.parametrize(("values", "error", "named"), HOSTILE, ids=str)
def test_hostile_ranges_are_refused(
    pair: tuple[Path, Path], values: dict[str, Any], error: type[LanceError], named: str
) -> None:
    _, moved = pair
    rewrite(moved, set_first(**values))
    dataset = at(moved)
    actions: list[Callable[[], object]] = [
        lambda: dataset.take_rows([1], ["id"]),
        lambda: dataset.compact_files(target_rows_per_fragment=1_000),
        lambda: dataset.update({"s": "x"}, [("id", "in", [4, 305])], mode="columns"),
    ]
    for name in ("_rowid", *ABOUT[2:]):
        actions.append(lambda name=name: dataset.to_table([name]))  # type: ignore[misc]
    if values.get("offset") != 0 and values.get("size") != 0:
        # Clones copy the bytes without parsing them.
        actions.append(lambda: dataset.shallow_clone(str(moved) + "2"))
    for action in actions:
        with pytest.raises(error) as raised:
            action()
        assert named in str(raised.value)
    assert open_dataset(str(moved)).version == dataset.version
