"""Coverage-guided inputs: `python -m tests.hostile.fuzz [target ...] [--seconds N]`, which needs the extra `fuzz`.

Each target gets a process of its own, with the package instrumented. Inputs that reach something new are kept below
build/fuzz/, from one run to the next; what did harm is saved below build/hostile/, as by `python -m tests.hostile`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hostile.session import ENVIRONMENT, name_of

KEPT = Path("build") / "fuzz"
SAVED = Path("build") / "hostile"
#: Inputs of more bytes tell nothing more.
_LONGEST = 40_000
_TOLD = ("Breach", "==", "SUMMARY")
_RUNS = re.compile(r"^#(\d+)\s", re.MULTILINE)


def fuzz(name: str, seconds: int) -> tuple[int, str | None]:
    """Try a target for some time; return how many inputs it got, and what is wrong, if anything is."""
    corpus = KEPT / name
    corpus.mkdir(parents=True, exist_ok=True)
    artifacts = KEPT / "found" / name
    shutil.rmtree(artifacts, ignore_errors=True)
    artifacts.mkdir(parents=True)
    done = subprocess.run(
        [
            sys.executable,
            *("-W", "ignore", "-m", "tests.hostile.fuzz", "--inside", name),
            str(corpus),
            f"-max_total_time={seconds}",
            f"-max_len={_LONGEST}",
            f"-artifact_prefix={artifacts}/",
            "-timeout=300",
            "-rss_limit_mb=4096",
            "-len_control=0",
        ],
        capture_output=True,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    runs = [int(one) for one in _RUNS.findall(said)]
    if done.returncode == 0:
        return max(runs, default=0), None
    why = [line for line in said.splitlines() if line.startswith(_TOLD)] or [said[-500:]]
    said = why[0]
    for path in artifacts.iterdir():
        data = path.read_bytes()
        saved = SAVED / name / name_of(data)
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_bytes(data)
        said = f"{saved}: {said}"
    return max(runs, default=0), said


def _inside(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["lance_spark"], enable_loader_override=False):
        import tests.hostile.targets
    from tests.hostile.guard import guarded

    target = tests.hostile.targets.TARGETS[name]
    seeds = target.seeds()
    guarded(target.run, seeds[0])
    corpus = Path(arguments[0])
    for data in seeds:
        if len(data) < _LONGEST:
            (corpus / name_of(data)).write_bytes(data)

    def one(data: bytes) -> None:
        guarded(target.run, data, target.seconds)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        import random

        rng = random.Random(seed)
        if rng.random() < 0.5:
            try:
                worse = target.mutate(data, rng)
            except Exception:
                # It is so damaged that nothing can be made of it but by bytes.
                worse = b""
            if 0 < len(worse) <= most:
                return worse
        found: bytes = atheris.Mutate(data, most)
        return found

    atheris.Setup([sys.argv[0], *arguments], one, custom_mutator=mutated)
    atheris.Fuzz()


def main(given: list[str]) -> int:
    """Try targets one after the other; return the exit status."""
    if given[:1] == ["--inside"]:
        _inside(given[1], given[2:])
        return 0
    from tests.hostile.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args(given)
    failed = False
    for name in asked.targets or TARGETS:
        runs, what = fuzz(name, asked.seconds)
        print(f"{name:24} {runs:9,} inputs", "" if what is None else f"FAILED {what}", flush=True)
        failed |= what is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
