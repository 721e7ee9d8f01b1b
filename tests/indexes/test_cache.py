"""Index files are read once, up to the limits of the cache."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import pytest

from lance_spark.errors import MissingFileError
from lance_spark.indexes import cache as index_cache
from lance_spark.indexes.cache import IndexCache


class Files:
    """Counts the reads of each file."""

    def __init__(self, cache: IndexCache) -> None:
        self.cache = cache
        self.reads: list[str] = []

    def get(self, name: str, size: int = 1) -> str:
        def read() -> str:
            self.reads.append(name)
            return name

        result = self.cache.get(("root", name, None), read, lambda _: size)
        assert result == name
        return result


def test_the_least_recently_used_entry_is_dropped() -> None:
    files = Files(IndexCache(max_entries=2))
    for name in "abacab":
        files.get(name)
    assert files.reads == ["a", "b", "c", "b"]


def test_bytes_are_bounded() -> None:
    files = Files(IndexCache(max_bytes=10))
    for name, size in (("a", 4), ("b", 6), ("a", 4), ("c", 5), ("a", 4), ("b", 6)):
        files.get(name, size)
    assert files.reads == ["a", "b", "c", "b"]
    files.get("large", 11)
    files.get("large", 11)
    assert files.reads[4:] == ["large", "large"]
    files.get("b", 6)
    assert len(files.reads) == 6


def test_several_contents_are_read_in_one_call() -> None:
    files = Files(IndexCache(max_bytes=10))
    files.get("b", 6)
    calls = []

    def read(keys: Sequence[tuple[str, str, int | None]]) -> list[str]:
        calls.append([name for _, name, _ in keys])
        return calls[-1]

    def get_all(names: str) -> list[str]:
        return files.cache.get_all([("root", name, None) for name in names], read, lambda _: 3)

    assert get_all("abc") == ["a", "b", "c"]
    assert get_all("ca") == ["c", "a"]
    assert get_all("") == []
    # The limits hold: b was used before the others were added.
    assert get_all("bc") == ["b", "c"]
    assert calls == [["a", "c"], ["b"]]


def test_errors_are_not_cached() -> None:
    cache = IndexCache()

    def missing() -> str:
        raise MissingFileError("it is not there")

    with pytest.raises(MissingFileError):
        cache.get(("root", "a"), missing, len)
    assert Files(cache).get("a") == "a"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_a_fork_starts_without_locks() -> None:
    cache = index_cache.CACHE
    with cache._lock:
        child = os.fork()
        if not child:
            signal.alarm(20)
            os._exit(0 if cache.get(("root", "forked"), lambda: 7, lambda _: 1) == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
