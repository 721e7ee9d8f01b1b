"""The maximum number of commit attempts is an option of the caller."""

from __future__ import annotations

from pathlib import Path

import pytest

import lance_spark
from lance_spark.errors import CommitConflictError, InvalidOptionError
from lance_spark.table.manifest import versions
from tests.support.tables.pylance_written import ids, new_table, rows


def overtaken(monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> None:
    """Let pylance commit before each of the first attempts."""
    create = versions.create_manifest
    left = [times]

    def slow(*arguments: object) -> bool:
        if left[0]:
            left[0] -= 1
            new_rows = rows(1000 + left[0], 1)
            import lance

            lance.write_dataset(new_rows, str(path), mode="append")
        return create(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(versions, "create_manifest", slow)


@pytest.mark.parametrize(("retries", "fits"), [(0, False), (1, False), (2, True), (None, True)])
def test_commit_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int | None, fits: bool
) -> None:
    path = tmp_path / "table"
    new_table(path)
    overtaken(monkeypatch, path, 2)
    if fits:
        lance_spark.write_dataset(rows(6), str(path), mode="append", commit_retries=retries)
        assert ids(path) == [*range(6), 1001, 1000, 6, 7, 8]
        return
    with pytest.raises(CommitConflictError, match="allow more retries") as caught:
        lance_spark.write_dataset(rows(6), str(path), mode="append", commit_retries=retries)
    assert caught.value.retryable
    assert 6 not in ids(path)


def test_negative_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="commit_retries"):
        lance_spark.write_dataset(rows(6), str(tmp_path / "table"), commit_retries=-1)
