"""Parts of a scan that threads read at the same time: order, bytes, errors, and an early end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest

from lance_spark.scan.prefetch import Admit, parts_ahead

SEEDS = range(20)


class Parts:
    """Parts that count what they hold."""

    def __init__(self, seed: int, count: int = 12, size: int = 10) -> None:
        self.rng = random.Random(seed)
        self.lengths = [self.rng.randrange(4) for _ in range(count)]
        self.size = size
        self.lock = threading.Lock()
        self.admitted: dict[int, int] = {}
        self.begun: list[int] = []
        self.closed: list[int] = []

    def read(self, number: int, admit: Admit) -> Iterator[tuple[int, int]]:
        self.begun.append(number)
        admit(self.size)
        with self.lock:
            self.admitted[number] = self.size
        try:
            for item in range(self.lengths[number]):
                time.sleep(self.rng.random() / 500)
                yield number, item
        finally:
            self.closed.append(number)

    def __iter__(self) -> Iterator[partial[Iterator[tuple[int, int]]]]:
        return (partial(self.read, number) for number in range(len(self.lengths)))

    @property
    def items(self) -> list[tuple[int, int]]:
        return [
            (number, item) for number, count in enumerate(self.lengths) for item in range(count)
        ]


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lance-read-ahead"]


@pytest.mark.parametrize("seed", SEEDS)
def test_items_are_in_order(seed: int) -> None:
    parts = Parts(seed)
    at_once = parts.rng.choice([1, 2, 5, 16])
    most_bytes = parts.rng.choice([0, 25, 1000])
    items = parts_ahead(parts, most_bytes, at_once, lambda _: parts.size)
    assert list(items) == parts.items
    assert sorted(parts.closed) == list(range(len(parts.lengths)))
    assert not threads()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_consumer_that_stops(seed: int) -> None:
    parts = Parts(seed)
    items = parts_ahead(parts, 1000, 4, lambda _: parts.size)
    stop = parts.rng.randrange(1, len(parts.items))
    assert [next(items) for _ in range(stop)] == parts.items[:stop]
    items.close()
    assert not threads()
    # Each part that was begun is closed: files are not left open.
    assert set(parts.closed) == set(parts.admitted)
    assert len(parts.begun) <= len(parts.lengths)


def test_bytes_ahead_are_bounded() -> None:
    parts = Parts(0, count=10)
    parts.lengths = [1] * 10
    items = parts_ahead(parts, 3 * parts.size, 10, lambda _: parts.size)
    for taken in range(10):
        assert next(items) == (taken, 0)
        time.sleep(0.05)
        # The part in turn, and those after it that fit.
        assert set(parts.admitted) == set(range(min(taken + 4, 10)))
    assert next(items, None) is None


def test_an_error_follows_the_items_before_it() -> None:
    def read(number: int, _: Admit) -> Iterator[int]:
        if number == 3:
            raise ValueError("part 3")
        yield number

    begun: list[int] = []

    def parts() -> Iterator[partial[Iterator[int]]]:
        for number in range(1000):
            begun.append(number)
            yield partial(read, number)

    result: list[int] = []
    with pytest.raises(ValueError, match="part 3"):
        result.extend(parts_ahead(parts(), 100, 2, lambda _: 50))
    assert result == [0, 1, 2]
    assert len(begun) < 20
    assert not threads()


def test_an_error_of_the_list_of_parts() -> None:
    def parts() -> Iterator[partial[Iterator[int]]]:
        yield partial(lambda number, _: iter([number]), 1)
        raise ValueError("no more parts")

    result: list[int] = []
    with pytest.raises(ValueError, match="no more parts"):
        result.extend(parts_ahead(parts(), 100, 3, lambda _: 1))
    assert result == [1]
    assert not threads()
