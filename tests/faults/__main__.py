"""Runs schedules: `python -m tests.faults --first 1 --count 1000 --processes 2`. Prints what is
wrong, and a line of JSON at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from typing import Any

HASHES = {**os.environ, "PYTHONHASHSEED": "0"}


def run(first: int, count: int, step: int, store_kind: str | None, mutation: str) -> dict[str, Any]:
    """Run schedules in this process; with a mutation, until the first schedule fails.

    Returns
    -------
    dict
        schedules, steps, versions, reads, faults (by kind and call), outcomes (by operation and
        end), digest (of all that happened), failed: a list of seed, kind of store, what is wrong,
        and what happened.
    """
    from tests.faults.mutations import MEETING, mutated
    from tests.faults.run import Run, digest

    total: Counter[str] = Counter()
    faults: Counter[tuple[str, str]] = Counter()
    outcomes: Counter[tuple[str, str]] = Counter()
    failed = []
    text = ""
    with mutated(mutation):
        for seed in range(first, first + count * step, step):
            verdict = Run(seed, store_kind, meeting=mutation in MEETING).run()
            faults += verdict.faults
            outcomes += verdict.outcomes
            total += Counter(
                schedules=1,
                steps=verdict.steps,
                versions=verdict.versions,
                reads=verdict.reads,
                **{f"on {verdict.kind}": 1},
            )
            text = digest([text, *verdict.said])
            if verdict.wrong:
                failed.append([seed, verdict.kind, verdict.wrong, verdict.said])
                if not mutation:
                    print(f"seed {seed} on {verdict.kind}:", *verdict.wrong, file=sys.stderr)
                if mutation:
                    break
    return {
        **total,
        "faults": {" of ".join(key): number for key, number in sorted(faults.items())},
        "outcomes": {", ".join(key): number for key, number in sorted(outcomes.items())},
        "digest": text,
        "failed": failed,
    }


def run_all(
    first: int, count: int, processes: int = 1, store_kind: str | None = None, mutation: str = ""
) -> dict[str, Any]:
    """Run schedules in several processes, which share the seeds; see `run`."""
    running = []
    for number in range(processes):
        share = len(range(number, count, processes))
        arguments = [
            str(argument)
            for argument in (first + number, share, processes, store_kind or "", mutation)
        ]
        command = [sys.executable, "-m", "tests.faults", "--share", *arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=HASHES))
    started = time.monotonic()
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failed, digests = [], []
    for process in running:
        output, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"schedules ended with {process.returncode}")
        share_result = json.loads(output)
        faults.update(share_result.pop("faults"))
        outcomes.update(share_result.pop("outcomes"))
        failed += share_result.pop("failed")
        digests.append(share_result.pop("digest"))
        total.update(share_result)
    return {
        **total,
        "seconds": round(time.monotonic() - started, 1),
        "faults": dict(sorted(faults.items())),
        "outcomes": dict(sorted(outcomes.items())),
        "digests": digests,
        "failed": failed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kind", choices=["s3", "gs", "local"], help="of the store")
    parser.add_argument("--mutation", default="", help="a mistake to make, see mutations.py")
    parser.add_argument("--share", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.share:
        first, count, step, store_kind, mutation = arguments.share
        print(json.dumps(run(int(first), int(count), int(step), store_kind or None, mutation)))
        return 0
    totals = run_all(
        arguments.first, arguments.count, arguments.processes, arguments.kind, arguments.mutation
    )
    for seed, store_kind, wrong, log in totals.pop("failed"):
        print(f"seed {seed} on {store_kind}:", *wrong, sep="\n    ")
        if arguments.count == 1:
            print(*log, sep="\n")
        totals["lost"] = totals.get("lost", 0) + 1
    print(json.dumps(totals, indent=1))
    return 1 if totals.get("lost") else 0


if __name__ == "__main__":
    sys.exit(main())
