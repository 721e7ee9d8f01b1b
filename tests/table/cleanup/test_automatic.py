from __future__ import annotations

import logging
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.cleanup import automatic as auto_cleanup
from lance_spark.table.cleanup.automatic import parse_duration, requested_cleanup
from tests.support.tables.cleanup import files, versions

KEY = "lance.auto_cleanup."
CONFIGS: list[dict[str, str]] = [
    {"interval": "3"},
    {"interval": "0"},
    {"interval": "1"},
    {"interval": "+2"},
    {"interval": " 2"},
    {"interval": "x"},
    {"interval": "-1"},
    {"older_than": "0s"},
    {"interval": "1", "retain_versions": "3"},
    {"interval": "2", "retain_versions": "1"},
    {"interval": "1", "retain_versions": "0"},
    {"interval": "1", "retain_versions": "3", "older_than": "14d"},
    {"interval": "1", "retain_versions": "3", "older_than": "0s"},
    {"interval": "1", "older_than": "1ns"},
    {"interval": "1", "older_than": " 1 ns 2ns"},
    {"interval": "1", "older_than": "5"},
    {"interval": "1", "older_than": ""},
    {"interval": "1", "older_than": "1_000ns"},
    {"interval": "1", "delete_rate_limit": "0"},
    {"interval": "1", "delete_rate_limit": "1000"},
    {"interval": "1", "delete_concurrency": "0"},
    {"interval": "1", "delete_concurrency": "2"},
    {"interval": "1", "referenced_branch": "true"},
    {"interval": "1", "referenced_branch": "True"},
]


def numbers(start: int) -> pa.Table:
    return pa.table({"i": pa.array([start], pa.int64())})


def by_pylance(path: Path, at: int) -> None:
    lance.write_dataset(numbers(at), str(path), mode="append")


def by_us(path: Path, at: int) -> None:
    lance_spark.write_dataset(numbers(at), str(path), mode="append")


def table(path: Path, config: dict[str, str]) -> lance.LanceDataset:
    dataset = lance.write_dataset(numbers(0), str(path))
    dataset.update_config({KEY + key: value for key, value in config.items()})
    return dataset


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("config", "tagged"), [*((item, False) for item in CONFIGS), (CONFIGS[1], True)], ids=str
)
def test_automatic_cleanup_removes_what_pylance_removes(
    tmp_path: Path, config: dict[str, str], tagged: bool
) -> None:
    histories = []
    for name, append in (("theirs", by_pylance), ("ours", by_us)):
        path = tmp_path / name
        dataset = table(path, config)
        if tagged:
            dataset.tags.create("t", 1)
        history = []
        for at in range(6):
            append(path, at)
            history.append((versions(path), len(files(path))))
        histories.append(history)
        assert lance.dataset(str(path)).count_rows() == 7
    assert histories[0] == histories[1]


def test_branches_are_cleaned_up_as_by_pylance(tmp_path: Path) -> None:
    """Branches made from a removable version are cleaned up first, by their own configuration."""
    histories = []
    for name, append in (("theirs", by_pylance), ("ours", by_us)):
        path = tmp_path / name
        dataset = table(path, {"interval": "4", "referenced_branch": "true"})
        branch = dataset.create_branch("b", 2)
        branch.update_config({KEY + "interval": "1", KEY + "retain_versions": "2"})
        uri = str(path / "tree" / "b")
        for at in range(3):
            lance.write_dataset(numbers(10 + at), uri, mode="append")
        history = []
        for at in range(7):
            append(path, at)
            history.append((versions(path), versions(Path(uri))))
        histories.append(history)
        assert lance.dataset(uri).count_rows() == 4
    assert histories[0] == histories[1]


def test_errors_of_cleanup_do_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t"
    table(path, {"interval": "x"})
    with caplog.at_level(logging.WARNING, "lance_spark"):
        by_us(path, 1)
    assert "version 3 is committed" in caplog.text
    assert f"{KEY}interval must be a whole number of at least 0, not 'x'" in caplog.text

    def broken(*arguments: object, **options: object) -> None:
        raise KeyError("a defect")

    table(tmp_path / "u", {"interval": "1"})
    monkeypatch.setattr(auto_cleanup, "cleanup", broken)
    by_us(tmp_path / "u", 1)
    assert "a defect" in caplog.text
    assert lance.dataset(str(tmp_path / "u")).count_rows() == 2


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("14d", 14 * 86_400 * 10**9),
        ("1h 30m", 5_400 * 10**9),
        ("1h30m", 5_400 * 10**9),
        ("2weeks 1day", 15 * 86_400 * 10**9),
        ("1.5ms", 1_500_000),
        ("1M", 2_630_016 * 10**9),
        ("1y", 31_557_600 * 10**9),
        ("3 µs", 3_000),
    ],
)
def test_durations_are_parsed(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    "text", ["", " ", "5", "d", "1foo", "1_000s", "-1d", "1d,2h", "1d -", "1" * 5_000 + "s", "1.s"]
)
def test_invalid_durations_are_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="older_than"):
        parse_duration(text)


def test_huge_values_are_bounded() -> None:
    auto = requested_cleanup({KEY + "interval": "1", KEY + "older_than": f"{2**64 - 1}y"}, 5)
    assert auto is not None
    assert auto.policy.before_ns is not None
    assert auto.policy.before_ns < 0
    with pytest.raises(InvalidInputError, match="interval"):
        requested_cleanup({KEY + "interval": str(2**64)}, 5)


def test_no_requests_without_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    lance.write_dataset(numbers(0), str(path))

    def refuse(self: ObjectStore, folder: str) -> None:
        raise AssertionError(folder)

    monkeypatch.setattr(ObjectStore, "list_tree", refuse)
    by_us(path, 1)
    assert versions(path) == [1, 2]
