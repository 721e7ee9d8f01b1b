"""The behaviour of every store. A test module for each kind of store inherits these tests."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import CorruptFileError, InvalidInputError, MissingFileError
from lance_spark.storage.source import ByteRange
from lance_spark.storage.store import ObjectStore


class StoreSuite:
    """`store` is a fixture with an empty root."""

    def test_write_and_read(self, store: ObjectStore) -> None:
        output = store.open_output("data/a.lance")
        output.write(b"abc")
        output.write(np.arange(4, dtype=np.uint32))
        output.write(pa.py_buffer(b"xyz"))
        assert output.tell() == 22
        output.close()
        output.close()
        expected = b"abc" + np.arange(4, dtype="<u4").tobytes() + b"xyz"
        assert store.read_bytes("data/a.lance") == expected
        assert store.list("data") == [("a.lance", 22)]
        source = store.open("data/a.lance")
        assert source.size == 22
        assert source.name.endswith("data/a.lance")
        first, last, none = source.read([ByteRange(0, 3), ByteRange(19, 3), ByteRange(22, 0)])
        assert (first.tobytes(), last.tobytes(), none.tobytes()) == (b"abc", b"xyz", b"")
        assert first.dtype == np.uint8
        assert not first.flags.writeable
        source.close()
        assert first.tobytes() == b"abc"

    def test_overlapping_and_distant_ranges(self, store: ObjectStore) -> None:
        data = np.random.default_rng(0).integers(0, 256, 1_000_000).astype(np.uint8).tobytes()
        store.write_bytes("f", data)
        rng = np.random.default_rng(1)
        ranges = [
            ByteRange(int(o), int(min(n, len(data) - o)))
            for o, n in zip(rng.integers(0, len(data), 50), rng.integers(0, 9000, 50), strict=True)
        ]
        for result, (o, n) in zip(store.open("f").read(ranges), ranges, strict=True):
            assert result.tobytes() == data[o : o + n]

    @pytest.mark.parametrize("bad", [(-1, 2), (0, 6), (5, 1), (2**63, 1), (0, 2**63), (1, -1)])
    def test_ranges_outside_the_file(self, store: ObjectStore, bad: tuple[int, int]) -> None:
        store.write_bytes("d/short", b"12345")
        with pytest.raises(CorruptFileError, match="d/short"):
            store.open("d/short").read([ByteRange(*bad)])

    def test_a_file_shorter_than_its_recorded_size(self, store: ObjectStore) -> None:
        store.write_bytes("d/short", b"12345")
        with pytest.raises(CorruptFileError, match=r"d/short.*truncated"):
            store.open("d/short", size=100).read([ByteRange(0, 100)])
        # Its end is before the range begins. With several ranges, it is before some of them.
        for ranges in ([ByteRange(60, 10)], [ByteRange(0, 5), ByteRange(10**6, 10)]):
            with pytest.raises(CorruptFileError, match=r"d/short.*truncated"):
                store.open("d/short", size=2 * 10**6).read(ranges)

    def test_empty_file(self, store: ObjectStore) -> None:
        store.write_bytes("e", b"")
        source = store.open("e")
        assert source.size == 0
        assert [len(b) for b in source.read([ByteRange(0, 0)])] == [0]

    def test_missing(self, store: ObjectStore) -> None:
        for action in (store.open, store.read_bytes):
            with pytest.raises(MissingFileError, match="nowhere/x"):
                action("nowhere/x")
        assert store.list("nowhere") == []
        assert store.list_names("nowhere") == []
        assert not store.exists("nowhere/x")
        store.delete(["nowhere/x"])

    def test_list_is_not_recursive(self, store: ObjectStore) -> None:
        store.write_bytes("v/1", b"a")
        store.write_bytes("v/sub/2", b"b")
        store.write_bytes("v.w/3", b"c")
        assert store.list("v") == [("1", 1)]
        assert store.list_names("v") == ["1"]
        assert store.list("") == []

    def test_list_tree(self, store: ObjectStore) -> None:
        before = time.time()
        for name in ("v/1", "v/sub/deep/2 [x]", "v.w/3", "other"):
            store.write_bytes(name, name.encode())
        result = sorted(store.list_tree("v"), key=lambda info: info.path)
        assert [(info.path, info.size) for info in result] == [("v/1", 3), ("v/sub/deep/2 [x]", 16)]
        for info in result:
            assert info.modified is not None
            assert before - 5 < info.modified < time.time() + 5
        assert store.list_tree("nowhere") == []
        with pytest.raises(InvalidInputError):
            store.list_tree("../v")

    def test_delete(self, store: ObjectStore) -> None:
        for name in ("d/1", "d/2", "d/3 [x]*"):
            store.write_bytes(name, b"a")
        store.delete(["d/1", "d/absent", "d/3 [x]*"])
        assert store.list_names("d") == ["2"]

    def test_abort_leaves_nothing(self, store: ObjectStore) -> None:
        output = store.open_output("data/a")
        output.write(b"abc")
        output.abort()
        output.abort()
        assert store.list("data") == []

    def test_write_bytes_replaces(self, store: ObjectStore) -> None:
        store.write_bytes("x/hint", b"one")
        store.write_bytes("x/hint", b"two", durable=False)
        assert store.read_bytes("x/hint") == b"two"
        assert store.list_names("x") == ["hint"]

    def test_put_if_absent(self, store: ObjectStore) -> None:
        assert store.put_if_absent("_versions/1", b"first")
        assert not store.put_if_absent("_versions/1", b"second")
        assert store.read_bytes("_versions/1") == b"first"
        assert store.list_names("_versions") == ["1"]

    @pytest.mark.slow
    def test_later_files_have_later_times(self, store: ObjectStore) -> None:
        assert store.put_if_absent("v/1", b"first")
        # Some stores return times in whole seconds.
        time.sleep(1.1)
        assert store.put_if_absent("v/2", b"first")
        first, second = store.modified("v/1"), store.modified("v/2")
        assert first is not None
        assert second is not None
        assert first < second <= time.time() + 1
        listed = {item.path: item.modified for item in store.list_tree("v")}
        assert listed == pytest.approx({"v/1": first, "v/2": second}, abs=1)
        with pytest.raises(MissingFileError, match="v/3"):
            store.modified("v/3")

    def test_only_one_of_many_writers_creates_a_file(self, store: ObjectStore) -> None:
        for turn in range(20):
            name = f"_versions/{turn}"
            with ThreadPoolExecutor(8) as pool:
                won = list(pool.map(lambda i: store.put_if_absent(name, b"%d" % i), range(8)))  # noqa: B023
            assert won.count(True) == 1
            assert store.read_bytes(name) == b"%d" % won.index(True)

    def test_pickle(self, store: ObjectStore) -> None:
        store.write_bytes("x", b"1")
        assert pickle.loads(pickle.dumps(store)).read_bytes("x") == b"1"

    def test_paths_stay_below_the_root(self, store: ObjectStore) -> None:
        for action in (store.open, store.read_bytes, store.exists, store.list):
            with pytest.raises(InvalidInputError):
                action("../x")
