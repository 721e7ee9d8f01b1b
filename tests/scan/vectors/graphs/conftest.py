"""Graphs are followed in small partitions, too."""

from __future__ import annotations

import pytest

from lance_spark.scan.vectors.graphs import graph


@pytest.fixture
def _follows_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "_FEW_ROWS", 0)
    monkeypatch.setattr(graph, "_MOST_SEEN", 1)
