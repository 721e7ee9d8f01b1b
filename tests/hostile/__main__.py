"""Throws made inputs at every parser: `python -m tests.hostile [--minutes N] [--seed S] [--inputs
N] [target ...]`.

`--replay FILE ...` tries inputs again that were saved.

Prints how many each target got and how many it refused, and one line of JSON in the end: inputs,
targets, failures. Inputs that did harm are saved below build/hostile/, in a folder of the target's
name; moved to tests/hostile/regressions/ they are tried with the tests. Exits with 1 if there are
any.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from pathlib import Path

from tests.hostile.session import name_of, replay, throw

SAVED = Path("build") / "hostile"


def main(arguments: list[str] | None = None) -> int:
    """Run, print and save; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--inputs", type=int, default=10**9)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--replay", type=Path, nargs="+", default=())
    options = parser.parse_args(arguments)
    if options.replay:
        result = replay(options.replay)
        print("\n".join(result) or "nothing is wrong")
        return 1 if result else 0
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    outcome = throw(seed, options.inputs, options.minutes * 60, options.targets)
    for name, count in sorted(outcome.inputs.items()):
        print(f"{name:20} {count:9,} inputs {outcome.refused[name]:9,} refused")
    for name, problem, data in outcome.failures:
        path = SAVED / name / name_of(data)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        print(f"FAILED {path} ({len(data)} bytes): {problem}")
    print(
        json.dumps(
            {
                "inputs": outcome.inputs.total(),
                "targets": len(outcome.inputs),
                "failures": len(outcome.failures),
            }
        )
    )
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
