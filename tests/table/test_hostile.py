"""Tables with damaged or malicious manifests, transactions, deletion files and references."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, LanceError
from lance_spark.proto import transaction_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest.codec import decode, encode
from lance_spark.table.open import read_latest
from tests.hostile import corpus
from tests.hostile.corpus import rows
from tests.hostile.mutate import Mutate, bitmap_bomb, worse_bytes, worse_message
from tests.hostile.targets import worse_manifest
from tests.hostile.texts import worse_json
from tests.support.cells import number_of
from tests.support.tables.hostile_session import Session

#: Processor seconds of a step. Steps on sound tables take some milliseconds.
LONGEST = 5.0
SEED = 20_250_301
#: Damages to each file.
DAMAGES = number_of(12, 200)
#: Version of the tables.
NEWEST = 7

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(corpus.table("plain"), tmp_path_factory.mktemp("plain") / "t")


@pytest.fixture(scope="module")
def stable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with stable row ids."""
    return shutil.copytree(corpus.table("stable"), tmp_path_factory.mktemp("stable") / "t")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with files of its own and files of another table."""
    path = shutil.copytree(corpus.table("plain"), tmp_path_factory.mktemp("clone") / "t")
    uri = str(path.with_name("clone"))
    dataset = lance.dataset(str(path)).shallow_clone(uri, NEWEST)
    dataset.tags.create("t", NEWEST)
    lance.write_dataset(rows(20_000), uri, mode="append")
    return path.with_name("clone")


def newest(path: Path) -> str:
    return str(corpus.newest(path).relative_to(path))


def torment(path: Path, file: str, contents: list[bytes], **options: Any) -> dict[str, Any]:
    """Use a table with each content in one of its files, in a process that must not fail."""
    roots = (str(path), str(path.with_name("t")))
    oldest = lance.dataset(str(path)).versions()[0]["version"]
    session = Session(str(path), roots, file, contents, oldest, **options)
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.tables.hostile_session"],
        input=pickle.dumps(session),
        capture_output=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    bad = {key: result[key] for key in ("sound", "wrong", "unnamed", "outside") if result[key]}
    assert bad == {}, json.dumps(bad, indent=1)
    assert result["slowest"][0] < LONGEST, result["slowest"]
    return result


def worsened(mutate: Mutate, data: bytes, rng: random.Random, count: int) -> list[bytes]:
    """Return a file with so many random damages."""
    result: list[bytes] = []
    while len(result) < count:
        worse = mutate(data, rng)
        if worse != data:
            result.append(worse)
    return result


def same_bases(data: bytes, content: bytes) -> bool:
    """Return whether the damage left the base paths unchanged. Other base paths may point
    anywhere.
    """
    try:
        result = decode(content, "m").message.base_paths
    except LanceError:
        return True
    return [item.path for item in result] == [
        base.path for base in decode(data, "m").message.base_paths
    ]


# Many inputs of `worse_manifest` are sound: they change fields that no reader needs or knows.
@pytest.mark.sample(3)
@pytest.mark.parametrize(("mutate", "least"), [(worse_bytes, 1), (worse_manifest, 0.25)])
@pytest.mark.parametrize("table", ["plain", "stable", "clone"])
def test_damaged_manifests(
    request: pytest.FixtureRequest, table: str, mutate: Mutate, least: float
) -> None:
    path = request.getfixturevalue(table)
    file = newest(path)
    data = (path / file).read_bytes()
    contents = worsened(mutate, data, random.Random(table), DAMAGES)
    contents = [item for item in contents if same_bases(data, item)]
    result = torment(path, file, contents)
    assert result["outcomes"]["CorruptTableError"] > len(contents) * least


def test_truncated_manifests(plain: Path) -> None:
    data = (plain / newest(plain)).read_bytes()
    for at in range(len(data)):
        with pytest.raises(CorruptTableError, match="the file"):
            decode(data[:at], "the file")


@pytest.mark.parametrize("suffix", ["arrow", "bin"])
def test_damaged_deletion_files(plain: Path, suffix: str) -> None:
    file = next(entry for entry in (plain / "_deletions").iterdir() if entry.suffix == f".{suffix}")
    bombs = [bitmap_bomb(2**32)] if suffix == "bin" else []
    contents = worsened(worse_bytes, file.read_bytes(), random.Random(SEED), DAMAGES) + bombs
    result = torment(plain, f"_deletions/{file.name}", contents, writes=False)
    assert result["outcomes"]["CorruptFileError"] > len(contents)


@pytest.fixture(scope="module")
def without_copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with transactions in files only, as early releases wrote them."""
    path = shutil.copytree(corpus.table("plain"), tmp_path_factory.mktemp("files") / "t")
    for manifest in (path / "_versions").glob("*.manifest"):
        result = decode(manifest.read_bytes(), "m")
        manifest.write_bytes(encode(result.to_proto(), result.index_section, None))
    return path


@pytest.mark.sample(2)
@pytest.mark.parametrize("operation", ["append", "delete", "create_index", "update_config"])
def test_damaged_transactions(without_copies: Path, operation: str) -> None:
    path = without_copies
    file, data = next(
        (f"_transactions/{entry.name}", entry.read_bytes())
        for entry in sorted((path / "_transactions").iterdir(), reverse=True)
        if transaction_pb2.Transaction.FromString(entry.read_bytes()).HasField(operation)
    )
    worse = worse_message(transaction_pb2.Transaction)
    torment(path, file, worsened(worse, data, random.Random(operation), DAMAGES))


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
    data = (plain / file).read_bytes()
    torment(plain, file, REFERENCES + worsened(worse_json, data, random.Random(SEED), 12))


@pytest.mark.parametrize(
    "hint", [*REFERENCES, b'{"version": 5}', b'{"version": 9223372036854775807}']
)
def test_hostile_hints(plain: Path, monkeypatch: pytest.MonkeyPatch, hint: bytes) -> None:
    """A hint, for stores whose listings lag behind, is used only if its manifest exists."""
    store = ObjectStore.from_uri(f"memory://hostile-hints-{os.getpid()}/t")
    for file in plain.glob("_versions/*.manifest"):
        store.write_bytes(f"_versions/{file.name}", file.read_bytes())
    store.write_bytes("_versions/latest_version_hint.json", hint)
    monkeypatch.setattr(ObjectStore, "is_consistent", False)
    assert read_latest(store).version == NEWEST


def test_base_paths_that_form_a_circle(tmp_path: Path) -> None:
    """Each of two tables is a base path of both: base paths of base paths are not followed."""
    first, second = tmp_path / "one", tmp_path / "two"
    for path, base_path in ((first, second), (second, first)):
        lance.write_dataset(rows(0), str(path), max_rows_per_file=2)
        file = newest(path)
        manifest = decode((path / file).read_bytes(), "m")
        proto = manifest.to_proto()
        for number, base in ((1, base_path), (2, path), (3, path / ".." / base_path.name)):
            proto.base_paths.add(id=number, path=str(base), is_dataset_root=True)
        proto.reader_feature_flags |= 16
        proto.writer_feature_flags |= 16
        for number, fragment in enumerate(proto.fragments):
            fragment.files[0].base_id = number + 1
        (path / file).write_bytes(encode(proto, None, manifest.transaction_section))
    for path, base_path in ((first, second), (second, first)):
        for fragment in lance_spark.open_dataset(str(path)).fragments[::2]:
            name = fragment.files[0].path
            shutil.copy(path / "data" / name, base_path / "data" / name)
        assert lance_spark.open_dataset(str(path)).to_table() == rows(0)


@pytest.mark.parametrize("number", [7, 2**32 - 1])
@pytest.mark.parametrize("file_type", ["data", "deletions"])
def test_missing_base_paths(plain: Path, tmp_path: Path, number: int, file_type: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(plain, path)
    file = newest(path)
    manifest = decode((path / file).read_bytes(), "m")
    proto = manifest.to_proto()
    for fragment in proto.fragments:
        if file_type == "data":
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
def test_unusual_manifest_names(plain: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    shutil.copytree(plain, path)
    (path / "_versions" / name).write_bytes(b"no manifest")
    dataset = lance_spark.open_dataset(str(path))
    assert dataset.version == NEWEST
    assert [version.version for version in dataset.versions()] == list(range(1, NEWEST + 1))
    if name.startswith("d") and name[1:2].isdigit():
        # It may be a detached version, whose files are unknown.
        with pytest.raises(CorruptTableError, match=re.escape(name)):
            dataset.cleanup_old_versions(retain_versions=3)
        return
    dataset.cleanup_old_versions(retain_versions=3, error_if_tagged_old_versions=False)
    assert (path / "_versions" / name).exists()


@pytest.mark.parametrize("file", ["_refs/tags/t.json", "_refs/branches/b.json"])
def test_references_of_unlimited_size(tmp_path: Path, file: str) -> None:
    """The reader refuses the size before it reads the file."""
    path = tmp_path / "t"
    lance.write_dataset(pa.table({"x": [1]}), str(path))
    dataset = lance_spark.open_dataset(str(path))
    dataset.tags.create("t", 1)
    dataset.create_branch("b")
    with open(path / file, "r+b") as opened:
        opened.truncate(1 << 42)
    with pytest.raises(CorruptTableError, match="more than 16777216 bytes"):
        (dataset.tags if "tags" in file else dataset.branches).list()
