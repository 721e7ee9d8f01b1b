"""Caches of limited size."""

from __future__ import annotations

from lance_spark.last_used import LastUsed


def test_what_was_used_longest_ago_is_forgotten() -> None:
    values: LastUsed[int, str] = LastUsed(2)
    assert [values.made(number, lambda n=number: str(n)) for number in (1, 2)] == ["1", "2"]  # type: ignore[misc]
    assert values.get(1) == "1"
    assert values.put(3, "3") == "3"
    assert [values.get(number) for number in (1, 2, 3)] == ["1", None, "3"]
    # Another thread was faster.
    assert values.put(1, "other") == "1"
    assert len(values) == 2
    values.clear()
    assert len(values) == 0
