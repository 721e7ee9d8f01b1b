"""Tables whose manifests, transactions, deletion files and references are damaged, or made to do harm."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from pyroaring import BitMap

import lance_spark
from lance_spark.errors import CorruptTableError, LanceError
from lance_spark.proto import rowids_pb2, table_pb2, transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest_file import decode, encode
from lance_spark.table.open import read_latest
from tests.table.hostile_session import Session

#: Seconds of the processor that any step may take; sound ones take some milliseconds.
LONGEST = 5.0
SEED = 20_250_301

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")


def rows(start: int, count: int = 6) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"i": pa.array(ids, pa.int64()), "s": [f"w{at}" for at in ids]})


def write_table(path: Path, **options: Any) -> None:
    """Write six versions with both kinds of deletion files, an index, configuration, a tag and a branch."""
    uri = str(path)
    dataset = lance.write_dataset(rows(0), uri, max_rows_per_file=3, **options)
    dataset = lance.write_dataset(rows(100, 12_000), uri, mode="append")
    dataset.delete("i = 1 or (i >= 100 and i < 6000)")
    dataset.create_scalar_index("i", "BTREE")
    dataset.update_config({"a": "b"})
    dataset.tags.create("t", 2)
    dataset.create_branch("b", 3)
    lance.write_dataset(rows(1_000), uri, mode="append")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "t"
    write_table(path)
    return path


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with stable row ids."""
    path = tmp_path_factory.mktemp("stable") / "t"
    write_table(path, enable_stable_row_ids=True)
    return path


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose files are those of another, and own ones."""
    path = tmp_path_factory.mktemp("clone") / "t"
    write_table(path)
    uri = str(path.with_name("clone"))
    dataset = lance.dataset(str(path)).shallow_clone(uri, 6)
    dataset.tags.create("t", 6)
    lance.write_dataset(rows(20_000), uri, mode="append")
    return path.with_name("clone")


def newest(path: Path) -> str:
    return min(
        f"_versions/{one.name}"
        for one in (path / "_versions").glob("*.manifest")
        if not one.name.startswith("d")
    )


def torment(path: Path, file: str, contents: list[bytes], **options: Any) -> dict[str, Any]:
    """Use a table with each of the contents in one of its files, in a process of its own; nothing bad may come of it."""
    roots = (str(path), str(path.with_name("t")))
    oldest = lance.dataset(str(path)).versions()[0]["version"]
    session = Session(str(path), roots, file, contents, oldest, **options)
    done = subprocess.run(
        [sys.executable, "-m", "tests.table.hostile_session"],
        input=pickle.dumps(session),
        capture_output=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bad = {key: found[key] for key in ("sound", "wrong", "unnamed", "outside") if found[key]}
    assert bad == {}, json.dumps(bad, indent=1)
    assert found["slowest"][0] < LONGEST, found["slowest"]
    return found


def damaged(data: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Cut, flip and fill a file: a third each."""
    found = [data[:at] for at in sorted(rng.sample(range(len(data)), min(count, len(data))))]
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        found.append(bytes(changed))
    for _ in range(count):
        changed = bytearray(data)
        start = rng.randrange(len(data))
        length = min(rng.choice((1, 2, 4, 8, 16)), len(data) - start)
        changed[start : start + length] = rng.choice(
            (b"\xff" * length, b"\0" * length, rng.randbytes(length), struct.pack("<Q", 2**60) * 2)
        )[:length]
        found.append(bytes(changed))
    return found


def names_of(message: Message) -> list[str]:
    return [field.name for field, _ in message.ListFields()]


NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**60, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    "",
    "/etc/passwd",
    "../../../etc/passwd",
    "a/../../b",
    "file:///etc/passwd",
    "x" * 10_000,
    "\0",
)
#: Bytes fields that hold messages or bitmaps of their own.
NESTED = {
    "inline_row_ids": rowids_pb2.RowIdSequence,
    "inline_created_at_versions": rowids_pb2.RowDatasetVersionSequence,
    "inline_last_updated_at_versions": rowids_pb2.RowDatasetVersionSequence,
}


def bitmap_bomb() -> bytes:
    """Four billion numbers in less than a megabyte."""
    bomb = BitMap()
    bomb.add_range(0, 2**32)
    bomb.run_optimize()
    data: bytes = bomb.serialize()
    return data


def worse(message: Message, rng: random.Random, bomb: bytes) -> None:
    """Make one field, somewhere in a message, what it must not be."""
    fields = list(message.ListFields())
    inner = [
        one
        for field, value in fields
        if field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field)
        for one in (value if field.is_repeated else (value,))
    ]
    if inner and rng.random() < 0.75:
        worse(rng.choice(inner), rng, bomb)
        return
    if isinstance(message, table_pb2.BasePath):
        # It may point anywhere; only its number and kind can be wrong.
        message.id = rng.choice((1, 7, 2**32 - 1))
        return
    field = rng.choice(message.DESCRIPTOR.fields)
    if fields and rng.random() < 0.7:
        field = rng.choice(fields)[0]
    if _is_map(field):
        return
    if rng.random() < 0.15:
        message.ClearField(field.name)
        return
    if field.is_repeated:
        values = getattr(message, field.name)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            first = values[0] if len(values) else values.add()
            for _ in range(rng.choice((1, 300))):
                values.add().CopyFrom(first)
        else:
            values.extend(_value(field, rng, bomb) for _ in range(rng.choice((1, 3, 1_000))))
        return
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        getattr(message, field.name).SetInParent()
        return
    kind = NESTED.get(field.name)
    if kind is not None and rng.random() < 0.8:
        nested = kind.FromString(getattr(message, field.name))
        worse(nested, rng, bomb)
        setattr(message, field.name, nested.SerializeToString())
        return
    setattr(message, field.name, _value(field, rng, bomb))


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _value(field: FieldDescriptor, rng: random.Random, bomb: bytes) -> object:
    kind = field.cpp_type
    if kind in (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_UINT32):
        limit = 2**64 if kind == FieldDescriptor.CPPTYPE_UINT64 else 2**32
        return rng.choice([number for number in NUMBERS if number < limit])
    if kind in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_INT32):
        limit = 2**63 if kind == FieldDescriptor.CPPTYPE_INT64 else 2**31
        return rng.choice([-1, -limit, *(number for number in NUMBERS if number < limit)])
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 3, 77))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.choice((b"", b"\xff" * 40, rng.randbytes(100), bomb))
        return rng.choice(TEXTS)
    return rng.choice((float("nan"), float("inf"), -1.0, 1e300))


def worse_manifests(data: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Manifests that are sound but for one or two fields, in themselves, their index section or their transaction."""
    manifest = decode(data, "m")
    bomb = bitmap_bomb()
    found = []
    while len(found) < count:
        proto = manifest.to_proto()
        index, transaction = manifest.index_section, manifest.transaction_section
        part = rng.random()
        if part < 0.15 and index is not None:
            section = table_pb2.IndexSection.FromString(index)
            worse(section, rng, bomb)
            index = section.SerializeToString()
        elif part < 0.3 and transaction is not None:
            message = transaction_pb2.Transaction.FromString(transaction)
            worse(message, rng, bomb)
            transaction = message.SerializeToString()
        else:
            for _ in range(rng.choice((1, 1, 2))):
                worse(proto, rng, bomb)
        found.append(encode(proto, index, transaction))
    return found


def same_bases(data: bytes, content: bytes) -> bool:
    """Tell whether a damaged manifest has the base paths of the sound one: they may point anywhere."""
    try:
        found = decode(content, "m").message.base_paths
    except LanceError:
        return True
    return [one.path for one in found] == [one.path for one in decode(data, "m").message.base_paths]


@pytest.mark.parametrize("table", ["plain", "stable", "clone"])
def test_damaged_manifests(request: pytest.FixtureRequest, table: str) -> None:
    path = request.getfixturevalue(table)
    file = newest(path)
    data = (path / file).read_bytes()
    contents = [one for one in damaged(data, random.Random(table), 15) if same_bases(data, one)]
    found = torment(path, file, contents)
    assert found["outcomes"]["CorruptTableError"] > len(contents)


@pytest.mark.parametrize("table", ["plain", "stable", "clone"])
def test_hostile_manifests(request: pytest.FixtureRequest, table: str) -> None:
    path = request.getfixturevalue(table)
    file = newest(path)
    contents = worse_manifests((path / file).read_bytes(), random.Random(table), 40)
    found = torment(path, file, contents)
    # Much of it is sound: what no reader needs, or what is unknown.
    assert found["outcomes"]["CorruptTableError"] > len(contents) / 4


def test_a_manifest_cut_anywhere(plain: Path) -> None:
    data = (plain / newest(plain)).read_bytes()
    for at in range(len(data)):
        with pytest.raises(CorruptTableError, match="the file"):
            decode(data[:at], "the file")


@pytest.mark.parametrize("suffix", ["arrow", "bin"])
def test_damaged_deletion_files(plain: Path, suffix: str) -> None:
    file = next(one for one in (plain / "_deletions").iterdir() if one.suffix == f".{suffix}")
    bombs = [bitmap_bomb()] if suffix == "bin" else []
    contents = damaged(file.read_bytes(), random.Random(SEED), 12) + bombs
    found = torment(plain, f"_deletions/{file.name}", contents, writes=False)
    assert found["outcomes"]["CorruptFileError"] > len(contents)


@pytest.fixture(scope="module")
def without_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose transactions are in files only, as early releases left them."""
    path = tmp_path_factory.mktemp("files") / "t"
    write_table(path)
    for manifest in (path / "_versions").glob("*.manifest"):
        found = decode(manifest.read_bytes(), "m")
        manifest.write_bytes(encode(found.to_proto(), found.index_section, None))
    return path


@pytest.mark.parametrize("operation", ["append", "delete", "create_index", "update_config"])
def test_damaged_transactions(without_copies: Path, operation: str) -> None:
    path = without_copies
    file, data = next(
        (f"_transactions/{one.name}", one.read_bytes())
        for one in sorted((path / "_transactions").iterdir(), reverse=True)
        if transaction_pb2.Transaction.FromString(one.read_bytes()).HasField(operation)
    )
    rng = random.Random(operation)
    contents = damaged(data, rng, 4)
    bomb = bitmap_bomb()
    for _ in range(18):
        message = transaction_pb2.Transaction.FromString(data)
        worse(message, rng, bomb)
        contents.append(message.SerializeToString())
    torment(path, file, contents)


DEEP = b"[" * 100_000
REFERENCES = [
    b"",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"5",
    b'"x"',
    DEEP,
    b'{"a":' * 50_000,
    b'{"version": 1e999}',
    b'{"version": -1}',
    b'{"version": 1.5}',
    b'{"version": "1"}',
    b'{"version": ' + b"9" * 10_000 + b"}",
    b'{"version": 18446744073709551615}',
    b'{"version": 2, "branch": "../../../etc"}',
    b'{"version": 2, "branch": "/etc"}',
    b'{"version": 2, "branch": ""}',
    b'{"version": 2, "branch": 7}',
    b'{"version": 2, "branch": ["b"]}',
    b'{"version": 2, "metadata": 7}',
    b'{"version": 2, "manifestSize": -1}',
    b'{"version": 2, "createdAt": "yesterday", "updatedAt": 5}',
    b'{"parentBranch": "../..", "parentVersion": 2, "createAt": 1}',
    b'{"parentBranch": "b", "parentVersion": 2, "createAt": 1}',
    b'{"parentVersion": -2, "createAt": 1}',
    b'{"parentVersion": 2, "createAt": 1e999}',
    b'{"parentVersion": 2, "createAt": 1, "identifier": {"version_mapping": [[1]]}}',
    b'{"parentVersion": 2, "createAt": 1, "identifier": {"version_mapping": [[1e999, "x"]]}}',
    b'{"parentVersion": 2, "createAt": 1, "identifier": {"version_mapping": [[-1, 7]]}}',
]


@pytest.mark.parametrize("file", ["_refs/tags/t.json", "_refs/branches/b.json"])
def test_damaged_references(plain: Path, file: str) -> None:
    contents = REFERENCES + damaged((plain / file).read_bytes(), random.Random(SEED), 4)
    torment(plain, file, contents)


@pytest.mark.parametrize(
    "hint", [*REFERENCES, b'{"version": 5}', b'{"version": 9223372036854775807}']
)
def test_hostile_hints(plain: Path, monkeypatch: pytest.MonkeyPatch, hint: bytes) -> None:
    """Stores whose listings lag behind have a hint; what it says is only believed if the manifest is there."""
    store = ObjectStore.from_uri(f"memory://hostile-hints-{os.getpid()}/t")
    for file in plain.glob("_versions/*.manifest"):
        store.write_bytes(f"_versions/{file.name}", file.read_bytes())
    store.write_bytes("_versions/latest_version_hint.json", hint)
    monkeypatch.setattr(ObjectStore, "is_consistent", False)
    assert read_latest(store).version == 6


def test_base_paths_in_a_circle(tmp_path: Path) -> None:
    """Two tables, each the other's base, and each its own: a base path is asked for files, not for more base paths."""
    one, two = tmp_path / "one", tmp_path / "two"
    for path, other in ((one, two), (two, one)):
        lance.write_dataset(rows(0), str(path), max_rows_per_file=2)
        file = newest(path)
        manifest = decode((path / file).read_bytes(), "m")
        proto = manifest.to_proto()
        for number, base in ((1, other), (2, path), (3, path / ".." / other.name)):
            proto.base_paths.add(id=number, path=str(base), is_dataset_root=True)
        proto.reader_feature_flags |= 16
        proto.writer_feature_flags |= 16
        for number, fragment in enumerate(proto.fragments):
            fragment.files[0].base_id = number + 1
        (path / file).write_bytes(encode(proto, None, manifest.transaction_section))
    for path, other in ((one, two), (two, one)):
        for fragment in lance_spark.open_dataset(str(path)).fragments[::2]:
            name = fragment.files[0].path
            shutil.copy(path / "data" / name, other / "data" / name)
        assert lance_spark.open_dataset(str(path)).to_table() == rows(0)


@pytest.mark.parametrize("number", [7, 2**32 - 1])
@pytest.mark.parametrize("what", ["data", "deletions"])
def test_base_paths_that_are_not_there(plain: Path, tmp_path: Path, number: int, what: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(plain, path)
    file = newest(path)
    manifest = decode((path / file).read_bytes(), "m")
    proto = manifest.to_proto()
    for fragment in proto.fragments:
        if what == "data":
            fragment.files[0].base_id = number
        elif fragment.HasField("deletion_file"):
            fragment.deletion_file.base_id = number
    (path / file).write_bytes(encode(proto, manifest.index_section, None))
    with pytest.raises(CorruptTableError, match=f"base path {number}"):
        lance_spark.open_dataset(str(path)).to_table()


@pytest.mark.parametrize(
    "name",
    [
        "x.manifest",
        ".manifest",
        "-1.manifest",
        "0.manifest",
        "00000000000000000007.manifest.tmp",
        "99999999999999999999.manifest",
        "9" * 200 + ".manifest",
        "d.manifest",
        "d5.manifest",
        "d99999999999999999999999.manifest",
        "٣.manifest",
        "7.manifest\n",
    ],
)
def test_strange_names_of_manifests(plain: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(plain, path)
    (path / "_versions" / name).write_bytes(b"no manifest")
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.version == 6
    assert [one.version for one in dataset.versions()] == [1, 2, 3, 4, 5, 6]
    if name.startswith("d") and name[1:2].isdigit():
        # It may be a detached version, whose needs nobody can tell.
        with pytest.raises(CorruptTableError, match=re.escape(name)):
            dataset.cleanup_old_versions(retain_versions=3)
        return
    dataset.cleanup_old_versions(retain_versions=3, error_if_tagged_old_versions=False)
    assert (path / "_versions" / name).exists()


@pytest.mark.parametrize("file", ["_refs/tags/t.json", "_refs/branches/b.json"])
def test_endless_references(tmp_path: Path, file: str) -> None:
    """They are not read into memory to find out that they are none."""
    path = tmp_path / "t"
    lance.write_dataset(pa.table({"x": [1]}), str(path))
    dataset = lance_spark.open_dataset(str(path))
    dataset.tags.create("t", 1)
    dataset.create_branch("b")
    with open(path / file, "r+b") as opened:
        opened.truncate(1 << 42)
    with pytest.raises(CorruptTableError, match="more than 16777216 bytes"):
        (dataset.tags if "tags" in file else dataset.branches).list()
