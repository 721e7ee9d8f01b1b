"""Runs dbt's commands in one process, and so in one session of Spark: a line of JSON for each.

dbt imports all modules on its path whose names begin with `dbt_`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dbt.cli.main import dbtRunner

#: What precedes a reply: dbt writes its log to the same stream.
REPLY = "reply: "


def run(arguments: list[str]) -> dict[str, Any]:
    """Run a command; return whether it succeeded, and status and message of each node."""
    result = dbtRunner().invoke(arguments)
    nodes = getattr(result.result, "results", None) or []
    return {
        "success": result.success,
        "error": str(result.exception or ""),
        "nodes": {
            node.node.name: [str(node.status.value), node.message or ""]
            for node in nodes
            if hasattr(node, "node")
        },
    }


def rows(statement: str) -> list[list[str]]:
    """Return the rows of a statement of SQL in the session of dbt, as text."""
    from pyspark.sql import SparkSession

    found = SparkSession.builder.getOrCreate().sql(statement).collect()
    return [[str(value) for value in row] for row in found]


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        answer = rows(request["sql"]) if "sql" in request else run(request["dbt"])
        print(REPLY + json.dumps(answer), flush=True)
