"""What short reads ask of all fragments of a version is computed once."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import InvalidInputError
from lance_spark.scan import plan
from lance_spark.table.fragments.fragment import Fragment


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("listed") / "t.lance")
    lance.write_dataset(pa.table({"id": np.arange(900)}), path, max_rows_per_file=30)
    lance.dataset(path).delete("id % 7 = 3 OR (id >= 60 AND id < 89)")
    return path


def test_fragments_are_asked_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lance_spark.open_dataset(path)
    asked: list[int] = []
    num_rows = Fragment.num_rows.fget
    assert num_rows is not None

    def counted(fragment: Fragment) -> int:
        asked.append(fragment.id)
        return num_rows(fragment)

    monkeypatch.setattr(Fragment, "num_rows", property(counted))
    for _ in range(3):
        positions = [5, 700]
        assert dataset.take(positions).equals(lance.dataset(path).take(positions))
    # Once of each fragment, and of those that have the rows.
    assert len(asked) < 60


@pytest.mark.parametrize("deleted", [False, True])
def test_fragments_of_a_limit(path: str, deleted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = lance_spark.open_dataset(path)
    planned: list[int] = []
    pack = plan.pack

    def spy(fragments: list[Fragment], *arguments: object, **keywords: object) -> object:
        planned.append(len(fragments))
        return pack(fragments, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr("lance_spark.dataset.reader.pack", spy)
    options = {"with_row_id": True, "include_deleted_rows": True} if deleted else {}
    every = dataset.to_table(**options)
    planned.clear()
    for offset in (0, 1, 25, 26, 60, 400, len(every) - 1, len(every), len(every) + 9):
        for limit in (1, 3, 26, 100):
            rows = dataset.to_table(offset=offset, limit=limit, **options)
            assert rows.equals(every.slice(offset, limit)), (offset, limit)
    assert max(planned) <= 6


def test_selected_fragments(path: str) -> None:
    fragments = lance_spark.open_dataset(path).fragments
    assert [part.id for part in plan.select_fragments(fragments, [9, 2, 9])] == [2, 9]
    assert plan.select_fragments(fragments, []) == []
    with pytest.raises(InvalidInputError, match="no fragment 77"):
        plan.select_fragments(fragments, [3, 77])
