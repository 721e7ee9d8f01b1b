"""Metrics of the scans of a query that has run."""

from __future__ import annotations

from typing import Any


def counted(frame: Any, metric: str = "numOutputRows") -> list[int]:
    """Return the values of a metric, for each scan."""
    counts = []
    nodes = [frame._jdf.queryExecution().executedPlan()]
    while nodes:
        node = nodes.pop()
        name = node.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            nodes.append(node.executedPlan())
        elif name.endswith("StageExec"):
            nodes.append(node.plan())
        elif name == "BatchScanExec":
            counts.append(node.metrics().apply(metric).value())
        nodes += [node.children().apply(number) for number in range(node.children().size())]
    return counts
