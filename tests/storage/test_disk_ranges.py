"""Ranges of files on the local disk, which processes share."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import lance
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lance_spark
from lance_spark.errors import CorruptError, InvalidOptionError
from lance_spark.indexes.cache import CACHE
from lance_spark.storage import disk_ranges
from lance_spark.storage.disk_ranges import (
    DiskFile,
    DiskRanges,
    DiskSettings,
    identity_of,
    is_never_reused,
    parse_settings,
)
from lance_spark.storage.kept_ranges import KEPT, WHOLE, Keep
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore

RANGE = ByteRange(100, 5000)
DATA = np.frombuffer(bytes(range(250)) * 20, np.uint8)
LIMIT = 1 << 20


def cache_in(folder: Path, max_bytes: int = LIMIT) -> DiskRanges:
    return DiskRanges(DiskSettings(str(folder), max_bytes, keeps_data=False, is_default=False))


def file_in(cache: DiskRanges, name: str = "s3://b/t/data/f") -> DiskFile:
    return DiskFile(cache, b"store", name, 10_000)


def own_folder(folder: Path) -> Path:
    return folder / f"lance_spark-{os.getuid()}"


def entries(folder: Path) -> list[Path]:
    return [path for path in own_folder(folder).glob("??/*") if path.is_file()]


def put(cache: DiskRanges, name: str = "s3://b/t/data/f", size: int = len(DATA)) -> None:
    data = np.resize(DATA, size)
    file_in(cache, name).write(RANGE._replace(length=size), data)
    assert cache.drain(30)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache with one entry."""
    put(cache_in(tmp_path))
    (entry,) = entries(tmp_path)
    assert own_folder(tmp_path).stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o777 == 0o600
    cache = cache_in(tmp_path)
    found = file_in(cache).read(RANGE)
    assert found is not None
    assert found.tobytes() == DATA.tobytes()
    assert (cache.stats().entries, cache.stats().hits, cache.stats().nbytes) == (1, 1, 8192)
    return tmp_path


def damage(entry: Path) -> None:
    data = bytearray(entry.read_bytes())
    data[17] ^= 1
    entry.write_bytes(data)


def forge(entry: Path) -> None:
    """Another entry under this name."""
    cache = cache_in(entry.parents[2])
    put(cache, "s3://other/t/data/f")
    other = next(path for path in entries(entry.parents[2]) if path.name != entry.name)
    other.replace(entry)


def link(entry: Path) -> None:
    entry.rename(entry.parents[2] / "elsewhere")
    entry.symlink_to(entry.parents[2] / "elsewhere")


def link_folder(entry: Path) -> None:
    own = entry.parents[1]
    own.rename(own.with_name("elsewhere"))
    own.symlink_to(own.with_name("elsewhere"))


def make_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


DOUBTS: list[Callable[[Path], Any]] = [
    damage,
    forge,
    link,
    link_folder,
    make_pipe,
    lambda entry: os.truncate(entry, 100),
    lambda entry: os.truncate(entry, 10),
    lambda entry: entry.write_bytes(bytes(len(DATA) + 32)),
    lambda entry: entry.chmod(0o620),
    lambda entry: entry.chmod(0o602),
    lambda entry: entry.parents[1].chmod(0o770),
    lambda entry: entry.parents[1].chmod(0o707),
    lambda entry: entry.unlink(),
]


@pytest.mark.parametrize("change", DOUBTS)
def test_a_doubtful_entry_does_not_count(folder: Path, change: Callable[[Path], Any]) -> None:
    change(entries(folder)[0])
    cache = cache_in(folder)
    assert file_in(cache).read(RANGE) is None
    assert (cache.stats().hits, cache.stats().misses) == (0, 1)


def test_the_folder_of_another_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(folder)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert file_in(cache).read(RANGE) is None
    put(cache, "other")
    assert len(entries(folder)) == 1


def test_files_and_stores_have_entries_of_their_own(folder: Path) -> None:
    cache = cache_in(folder)
    uri = "s3://b/t/data/f"
    for other in (
        DiskFile(cache, b"another", uri, 10_000),
        DiskFile(cache, b"store", uri + "2", 10_000),
        DiskFile(cache, b"store", uri, 10_001),
    ):
        assert other.read(RANGE) is None
    assert file_in(cache).read(RANGE._replace(offset=99)) is None
    assert file_in(cache).read(RANGE._replace(length=4999)) is None
    put(cache, "other")
    for waiting in (False, True):
        if waiting:
            for number in range(20):
                file_in(cache).write(RANGE._replace(offset=number), DATA)
        file_in(cache).forget()
        assert cache.drain(30)
        assert file_in(cache).read(RANGE) is None
        assert file_in(cache).read(RANGE._replace(offset=19)) is None
    assert file_in(cache, "other").read(RANGE) is not None


def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = cache_in(folder)
    usage = (own_folder(folder) / "usage").read_text()
    write = os.write
    with monkeypatch.context() as patched:

        def fail(descriptor: int, data: Any) -> int:
            if len(data) > 100:
                return write(descriptor, data[:100])
            raise OSError(errno.ENOSPC, "no space left on device")

        patched.setattr(os, "write", fail)
        put(cache, "other")
    assert len(entries(folder)) == 1
    assert (own_folder(folder) / "usage").read_text() == usage
    # The next try is later.
    put(cache, "other")
    assert len(entries(folder)) == 1
    cache._failed_at -= 60
    put(cache, "other")
    assert len(entries(folder)) == 2
    # The last bytes of a disk are for others.
    monkeypatch.setattr(disk_ranges, "_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(disk_ranges, "_FREE_SHARE", 1)
    put(cache, "third")
    assert len(entries(folder)) == 2


def test_what_cannot_be_a_folder(tmp_path: Path) -> None:
    for name in ("/dev/null/folder", str(tmp_path / ("x" * 300))):
        cache = cache_in(Path(name))
        put(cache)
        assert file_in(cache).read(RANGE) is None
    # The folder of an executor that has ended is not made again.
    gone = tmp_path / "gone"
    cache = DiskRanges(DiskSettings(str(gone), LIMIT, keeps_data=False, is_default=True))
    put(cache)
    assert not gone.exists()


def test_entries_that_were_used_last_stay(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    for number in range(40):
        put(cache, f"file {number}", 60_000)
        # The thread that writes has recorded a use a minute ago.
        for path in entries(tmp_path):
            os.utime(path, (time.time() - 600,) * 2)
        assert file_in(cache, "file 0").read(RANGE._replace(length=60_000)) is not None
    stats = cache.stats()
    assert stats.nbytes <= LIMIT
    assert stats.entries >= 10
    assert file_in(cache, "file 39").read(RANGE._replace(length=60_000)) is not None
    # An entry that would push out most of the others.
    put(cache, "long", LIMIT // 4)
    assert file_in(cache, "long").read(RANGE._replace(length=LIMIT // 4)) is None


def test_a_count_of_before_a_crash_of_the_machine(folder: Path) -> None:
    usage = own_folder(folder) / "usage"
    for text in ("another-start 4096", "", "x" * 200):
        usage.write_text(text)
        before = sum(-(-path.stat().st_size // 4096) * 4096 for path in entries(folder))
        put(cache_in(folder), f"after {text[:3]}")
        assert int(usage.read_text().split()[1]) == before + 8192


WRITER = """
import sys, numpy as np
from pathlib import Path
from tests.storage.test_disk_ranges import cache_in, file_in, content
from lance_spark.storage.source import ByteRange
cache = cache_in(Path(sys.argv[1]))
print("ready", flush=True)
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    data = content(number % 100)
    file = file_in(cache, f"file {number % 100}")
    read = file.read(ByteRange(0, len(data)))
    assert read is None or read.tobytes() == data.tobytes(), number
    file.write(ByteRange(0, len(data)), data)
    if number % 16 == 0:
        assert cache.drain(60)
assert cache.drain(60)
"""


def content(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, 20_000 + 977 * number).astype(np.uint8)


def writer(folder: Path, start: int, stop: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(start), str(stop)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def size_of(folder: Path) -> int:
    """Return the bytes of all entries at one time: none is made or pushed out under the lock."""
    sizes: dict[int, int] = {}
    if not own_folder(folder).exists():
        return 0
    with (own_folder(folder) / "usage").open("a") as usage:
        fcntl.flock(usage, fcntl.LOCK_EX)
        for path in own_folder(folder).glob("??/*"):
            # A complete entry gets its name without the lock.
            with suppress(FileNotFoundError):
                status = path.stat()
                sizes[status.st_ino] = -(-status.st_size // 4096) * 4096
    return sum(sizes.values())


def right_entries(folder: Path) -> int:
    """Check all entries; return how many there are."""
    cache = cache_in(folder)
    found = 0
    for number in range(100):
        data = content(number)
        read = file_in(cache, f"file {number}").read(ByteRange(0, len(data)))
        assert read is None or read.tobytes() == data.tobytes()
        found += read is not None
    return found


@pytest.mark.slow
def test_many_processes_keep_the_limit(tmp_path: Path) -> None:
    processes = [writer(tmp_path, start, start + 300) for start in range(0, 60, 15)]
    most = 0
    while any(process.poll() is None for process in processes):
        most = max(most, size_of(tmp_path))
        time.sleep(0.002)
    assert [process.returncode for process in processes] == [0] * 4
    assert LIMIT // 2 < most <= LIMIT
    assert right_entries(tmp_path) >= 5


@pytest.mark.slow
def test_a_process_that_is_killed(tmp_path: Path) -> None:
    for number in range(8):
        process = writer(tmp_path, 0, 1 << 30)
        time.sleep(0.02 + 0.013 * number)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert size_of(tmp_path) <= LIMIT
        right_entries(tmp_path)
    # The lock is free, and what was left is pushed out.
    process = writer(tmp_path, 0, 300)
    assert process.wait(60) == 0
    assert size_of(tmp_path) <= LIMIT
    assert right_entries(tmp_path) >= 5


def test_options(counted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_ranges._Process, "default", None)
    assert parse_settings({}) is None
    named = parse_settings({"disk_cache": "/cache"})
    assert named == DiskSettings("/cache", disk_ranges.DEFAULT_BYTES, False, False)
    options = {"disk_cache": "/cache", "disk_cache_bytes": 5, "disk_cache_data": True}
    assert parse_settings(options) == DiskSettings("/cache", 5, True, False)
    assert parse_settings({**options, "disk_cache_bytes": "0"}) is None
    disk_ranges.use_by_default("/of/spark")
    assert parse_settings({}) == DiskSettings("/of/spark", disk_ranges.DEFAULT_BYTES, False, True)
    monkeypatch.setenv("LANCE_SPARK_DISK_CACHE", "/named")
    monkeypatch.setenv("LANCE_SPARK_DISK_CACHE_BYTES", "7")
    monkeypatch.setenv("LANCE_SPARK_DISK_CACHE_DATA", "true")
    assert parse_settings({}) == DiskSettings("/named", 7, True, False)
    for off in ("off", "OFF"):
        assert parse_settings({"disk_cache": off}) is None
    with pytest.raises(InvalidOptionError, match="storage option disk_cache must be the absolute"):
        ObjectStore.from_uri("counted:///t", {"disk_cache": "relative"})
    for name, value in (("disk_cache_bytes", "1 GiB"), ("disk_cache_data", "yes")):
        with pytest.raises(InvalidOptionError, match=f"storage option {name} must be"):
            parse_settings({"disk_cache": "/cache", name: value})
    monkeypatch.setenv("LANCE_SPARK_DISK_CACHE", "off")
    assert parse_settings({}) is None
    monkeypatch.setenv("LANCE_SPARK_DISK_CACHE", "x")
    with pytest.raises(InvalidOptionError, match="variable LANCE_SPARK_DISK_CACHE must be"):
        parse_settings({})


def test_what_decides_which_store_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    options = {"endpoint_url": "http://one", "key": "k", "client_kwargs": {"region_name": "r"}}
    identity = identity_of("s3", options, None)
    assert identity == identity_of("s3", dict(reversed(options.items())), None)
    others = [
        identity_of("s3", {**options, "endpoint_url": "http://two"}, None),
        identity_of("s3", {**options, "key": "l"}, None),
        identity_of("s3", options, "a namespace"),
        identity_of("gs", options, None),
    ]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://two")
    others.append(identity_of("s3", options, None))
    assert len({identity, *others}) == 6
    assert None not in others
    assert identity_of("s3", {"session": object()}, None) is None


class Counted(LocalFileSystem):
    """Counts the requests for all files but manifests."""

    protocol = "counted"
    requests: list[str] = []  # noqa: RUF012 - of all instances

    def cat_file(self, path: str, *place: Any, **more: Any) -> bytes:
        if "_versions" not in path:
            Counted.requests.append(path)
        data: bytes = super().cat_file(path, *place, **more)
        return data


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("disk") / "t"
    count = 40_000
    y = np.random.default_rng(1).random(count)
    rows = pa.table({"x": range(count), "g": [f"word {n % 3}" for n in range(count)], "y": y})
    dataset = lance.write_dataset(rows, str(path), max_rows_per_file=10_000)
    dataset.create_scalar_index("g", "BITMAP")
    dataset.create_scalar_index("x", "BTREE")
    dataset.delete("x % 1000 = 7")
    return path


@pytest.fixture
def counted(local: Path, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    fsspec.register_implementation("counted", Counted, clobber=True)
    Counted.requests.clear()
    CACHE.clear()
    yield f"counted://{local}", {"disk_cache": str(tmp_path / "cache")}
    disk_ranges._Process.caches.clear()


def requests_of(action: Callable[[], object]) -> list[str]:
    """Return the requests of another process, which has nothing in its memory."""
    assert disk_ranges.drain(30)
    KEPT.clear()
    CACHE.clear()
    Counted.requests.clear()
    action()
    return sorted(Counted.requests)


def test_another_process_reads_no_description(counted: tuple[str, dict[str, str]]) -> None:
    uri, options = counted

    def read(**more: str) -> tuple[list[str], pa.Table]:
        table = lance_spark.open_dataset(uri, storage_options={**options, **more})
        found: list[pa.Table] = []
        requests = requests_of(
            lambda: found.append(table.to_table(filter="g = 'word 1' and x >= 0"))
        )
        return requests, found[0]

    first, expected = read()
    assert {name.split("/")[-2] for name in first} > {"data", "_deletions"}
    second, rows = read()
    assert rows.equals(expected)
    # Footers, page lists, deletion files and pages of indexes are on the disk; values are not.
    assert {name.split("/")[-2] for name in second} == {"data"}
    assert len(second) == len(first) - 11
    stats = lance_spark.cache_stats()["disk"]
    assert stats.entries == 11
    assert stats.hits >= 11
    assert stats.max_bytes == disk_ranges.DEFAULT_BYTES
    # With other options it is another store, and `off` does not look at the disk.
    assert read(disk_cache="off") == (first, expected)
    assert read(io_threads="2")[0] == second
    assert read(auto_mkdir="False")[0] == first
    # Values too.
    assert read(disk_cache_data="true")[1].equals(expected)
    assert read(disk_cache_data="true") == ([], expected)


def test_damaged_entries_are_read_from_the_store(counted: tuple[str, dict[str, str]]) -> None:
    uri, options = counted

    def read() -> pa.Table:
        dataset = lance_spark.open_dataset(uri, storage_options=options)
        return dataset.to_table(filter="x < 20000")

    first = requests_of(read)
    expected = read()
    assert disk_ranges.drain(30)
    for number, entry in enumerate(entries(Path(options["disk_cache"]))):
        [damage, lambda path: os.truncate(path, 40)][number % 2](entry)
    assert requests_of(read) == first
    assert requests_of(read) != first
    assert read().equals(expected)


def test_a_check_is_of_the_files(
    counted: tuple[str, dict[str, str]], local: Path, tmp_path: Path
) -> None:
    """A file that is damaged in the store is found, and what was kept of it is dropped."""
    _, options = counted
    path = tmp_path / "damaged"
    lance.write_dataset(pa.table({"x": range(1000)}), str(path))
    uri = f"counted://{path}"

    def opened() -> lance_spark.Dataset:
        return lance_spark.open_dataset(uri, storage_options=options)

    opened().to_table()
    (file,) = (path / "data").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-4] + b"LAND")
    assert requests_of(lambda: opened().to_table()) == []
    with pytest.raises(CorruptError, match="LANC"):
        opened().validate()
    assert disk_ranges.drain(30)
    file.write_bytes(whole)
    # What is damaged in the store does not stay, whether it is found by a check or by a read.
    options["disk_cache"] += "2"
    file.write_bytes(whole[:-4] + b"LAND")
    with pytest.raises(CorruptError, match="LANC"):
        opened().to_table()
    file.write_bytes(whole)
    for _ in range(2):
        requests_of(lambda: opened().to_table())
    assert requests_of(lambda: opened().validate()) == [uri + str(file)[len(str(path)) :]]


def test_names_that_are_never_used_again(local: Path, counted: tuple[str, dict[str, str]]) -> None:
    lance_spark.write_dataset(pa.table({"x": [1]}), local.parent / "own")
    lance_spark.open_dataset(local.parent / "own").delete("x = 1")
    lance_spark.write_dataset(pa.table({"x": [1, 2]}), local.parent / "own", "append")
    lance_spark.open_dataset(local.parent / "own").delete("x = 1")
    folders = set()
    for root in (local, local.parent / "own"):
        for path in (path.relative_to(root) for path in root.rglob("*") if path.is_file()):
            folder = path.parts[0]
            folders.add(folder)
            if folder in ("data", "_deletions", "_indices"):
                assert is_never_reused(path.as_posix()), path
            elif folder == "_versions":
                assert not is_never_reused(path.as_posix()), path
    assert folders >= {"data", "_deletions", "_indices", "_versions"}
    for name in ("data/part-0.lance", "data/0.lance", "_deletions/3-7-12.arrow", "t.manifest"):
        assert not is_never_reused(name)
    # The name of the table does not make those of its files unique.
    root = "counted:///550e8400-e29b-41d4-a716-446655440000/t"
    store = ObjectStore.from_uri(root, counted[1])
    random = "data/" + "01" * 16 + ".lance"
    kept = [store._kept(name, Keep.DATA_FILE, 5)._disk for name in ("data/part-0.lance", random)]
    assert [disk is None for disk in kept] == [True, False]
    assert store._kept(random, None, "tag")._disk is None


def test_a_whole_file(tmp_path: Path) -> None:
    cache = cache_in(tmp_path)
    file_in(cache).write(WHOLE, DATA)
    file_in(cache, "empty").write(WHOLE, DATA[:0])
    assert cache.drain(30)
    found = file_in(cache).read(WHOLE)
    assert found is not None
    assert found.tobytes() == DATA.tobytes()
    assert file_in(cache, "empty").read(WHOLE) is None
