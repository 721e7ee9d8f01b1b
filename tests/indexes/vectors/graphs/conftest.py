"""Graphs are followed in small partitions, too."""

from __future__ import annotations

import pytest

from lance_spark.indexes.vectors import hnsw


@pytest.fixture
def _follows_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hnsw, "_FEW_ROWS", 0)
    monkeypatch.setattr(hnsw, "_MOST_SEEN", 1)
