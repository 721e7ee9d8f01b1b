"""Small files that are read in parallel."""

from __future__ import annotations

import threading

import pytest

from lance_spark.storage.parallel import AT_ONCE, read_all, read_each


def test_results_come_in_order() -> None:
    later = threading.Event()

    def read(number: int) -> int:
        # The first answer arrives last.
        assert number or later.wait(10)
        if number == AT_ONCE - 1:
            later.set()
        return -number

    numbers = range(2 * AT_ONCE + 1)
    expected = [-item for item in numbers]
    assert read_all(read, numbers, local=False) == expected
    later.clear()
    assert list(read_each(read, numbers, local=False)) == expected


def test_whoever_stops_early_asks_for_little_more() -> None:
    numbers: list[int] = []
    result = read_each(numbers.append, range(1000), local=False)
    for _ in range(AT_ONCE + 1):
        next(result)
    result.close()
    assert AT_ONCE < len(numbers) <= 2 * AT_ONCE


@pytest.mark.parametrize("local", [False, True])
def test_the_first_error_is_raised_and_ends_the_run(local: bool) -> None:
    numbers: list[int] = []
    started = threading.Barrier(AT_ONCE)

    def read(number: int) -> None:
        numbers.append(number)
        if not local and number < AT_ONCE:
            started.wait(10)
        if number in (2, 5):
            raise ValueError(number)
        if number >= AT_ONCE:
            ended.wait(1)

    ended = threading.Event()
    with pytest.raises(ValueError, match="2"):
        read_all(read, range(1000), local=local)
    ended.set()
    assert len(numbers) == 3 if local else len(numbers) <= 3 * AT_ONCE


def test_local_files_are_read_one_after_the_other() -> None:
    def read(_: int) -> threading.Thread:
        return threading.current_thread()

    assert set(read_all(read, range(20), local=True)) == {threading.current_thread()}
    assert set(read_each(read, range(20), local=True)) == {threading.current_thread()}
    assert threading.current_thread() not in read_all(read, range(20), local=False)
