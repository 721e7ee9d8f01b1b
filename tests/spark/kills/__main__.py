"""Kills executors and drivers of Spark at each moment of each change, and at any time. Prints what
happened, at last as one line of JSON.

python -m tests.spark.kills [--rounds 4] [--seconds 40] [--seed 0]

A round changes a table for so many seconds while executors are killed at random, then kills the
driver.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from tests.spark.kills.harness import Kills
from tests.spark.kills.model import CHANGES, STATEMENTS

MOMENTS = ("writing", "commit", "committed")
ALL = (*CHANGES, *STATEMENTS)
#: Statements that Spark plans and a Python process commits.
ROW_STATEMENTS = ("sql_append", "sql_update", "sql_merge", "sql_delete")


def main() -> int:
    """Run all kills; return how many runs found an error."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="kills") as folder:
        kills = Kills(Path(folder))
        runs: list[tuple[tuple[str, ...], float | None]] = []
        writing = tuple(f"{change}:writing:executor" for change in ALL)
        runs.append((("append", *writing), None))
        for moment in MOMENTS:
            runs += [(("append", f"{change}:{moment}:driver"), None) for change in ALL]
        for moment in ("commit", "committed"):
            killed = (f"{change}:{moment}:planner" for change in ROW_STATEMENTS)
            runs.append((("append", *killed), None))
        runs += [((), arguments.seconds)] * arguments.rounds
        for number, (changes, seconds) in enumerate(runs):
            num_answers = len(kills.answers)
            try:
                kills.run(*changes, seconds=seconds, seed=arguments.seed + number)
            except AssertionError:
                traceback.print_exc()
                print(kills.output)
                wrong += 1
                # After an error, the expected rows of later runs are unknown.
                break
            print(changes or f"{seconds} s", kills.answers[num_answers:], flush=True)
        if not wrong:
            kills.clean()
        killed = len(list(Path(folder).glob("killed.*")))
        summary = {
            "kills": killed + kills.executors,
            **{f"changes {answer}": n for answer, n in Counter(kills.answers).items()},
            "appends beside them": len(kills.own),
            "failures": wrong,
        }
    print(json.dumps(summary))
    return wrong


if __name__ == "__main__":
    raise SystemExit(min(main(), 1))
