"""Eight processes, half of them with pylance, change a table: no acknowledged change is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import lance
import pytest

import lance_spark
from tests.concurrent.writers import CONFIG_KEY, MILLION, rows

CHANGES = 20
WRITERS = ["ours", "pylance"] * 4


def replay(changes: list[list[Any]]) -> tuple[dict[int, int], str | None]:
    """Return the rows and the configuration that the acknowledged changes of a writer produce."""
    values: dict[int, int] = {}
    config = None
    for change, *arguments in changes:
        if change == "append":
            values.update({number: number for number in arguments[0]})
        elif change == "delete":
            for number in arguments[0]:
                del values[number]
        elif change == "update":
            values.update(dict.fromkeys(arguments[0], arguments[1]))
        elif change == "config":
            config = arguments[0]
    return values, config


def run(path: Path) -> list[list[list[Any]]]:
    """Start all writers at the same moment; return the output of each."""
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.concurrent.writers",
                str(path),
                client,
                str(number),
                str(CHANGES),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, client in enumerate(WRITERS, 1)
    ]
    for process in processes:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == ["ready"]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    accounts = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-3000:]
        accounts.append([json.loads(line) for line in output.splitlines()])
    return accounts


@pytest.mark.sample(2)
@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_every_acknowledged_change_is_committed_once(tmp_path: Path, stable_row_ids: bool) -> None:
    path = tmp_path / "table"
    lance.write_dataset(rows([1, 2, 3]), str(path), enable_stable_row_ids=stable_row_ids)
    accounts = run(path)
    assert all(len(changes) == CHANGES for changes in accounts)

    expected = {1: 1, 2: 2, 3: 3}
    config = {}
    for number, changes in enumerate(accounts, 1):
        values, value = replay(changes)
        assert all(number * MILLION <= row < (number + 1) * MILLION for row in values)
        expected.update(values)
        if value is not None:
            config[CONFIG_KEY.format(number)] = value

    newest = lance.dataset(str(path))
    newest.validate()
    found_rows = newest.to_table().to_pylist()
    assert len(found_rows) == len(expected)
    assert {row["id"]: row["value"] for row in found_rows} == expected
    assert newest.config() == config

    # A change creates one version, a compaction two. There are no other versions. Both clients read
    # each version.
    versions = [version["version"] for version in newest.versions()]
    assert versions == [
        version.version for version in lance_spark.open_dataset(str(path)).versions()
    ]
    assert len(versions) > len(WRITERS) * CHANGES // 2
    for version in versions:
        theirs = lance.dataset(str(path), version=version).to_table()
        ours = lance_spark.open_dataset(str(path), version).to_table()
        assert ours.to_pylist() == theirs.to_pylist(), version
    if stable_row_ids:
        columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
        ours = lance_spark.open_dataset(str(path)).to_table(columns)
        assert ours.to_pylist() == newest.to_table(columns).to_pylist()
        assert len(set(ours["_rowid"].to_pylist())) == len(expected)
