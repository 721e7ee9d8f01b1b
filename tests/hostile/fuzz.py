"""Coverage-guided inputs: `python -m tests.hostile.fuzz [target ...] [--seconds N]`, which needs
the extra `fuzz`.

Each target gets a process of its own, with the package instrumented. Inputs that reach something
new are kept below build/fuzz/, from one run to the next; what did harm is saved below
build/hostile/, as by `python -m tests.hostile`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.session import ENVIRONMENT, name_of

KEPT = Path("build") / "fuzz"
SAVED = Path("build") / "hostile"
#: Longer inputs reach nothing new.
_LONGEST = 40_000
_LARGEST_SEED = 120_000
_TOLD = ("Breach", "==", "SUMMARY")
_RUNS = re.compile(r"^#(\d+)\s", re.MULTILINE)
_FEATURES = re.compile(r"^#\d+\s+(\w+)\s.*\bft: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """The outcome of one target.

    Attributes
    ----------
    inputs : int
        That were tried.
    known, features : int
        Branches, and how often they were taken, that the inputs of the start reach, and all in the
        end.
    wrong : str or None
        What is wrong, if anything is.
    """

    inputs: int
    known: int
    features: int
    wrong: str | None


def fuzz(name: str, seconds: int) -> Found:
    """Try a target for some time, and save inputs that do harm."""
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
            f"-artifact_prefix={artifacts}/",
            "-timeout=300",
            "-rss_limit_mb=4096",
            "-len_control=0",
        ],
        capture_output=True,
        env={**os.environ, **ENVIRONMENT},
        check=False,
    )
    output = (done.stdout + done.stderr).decode("utf-8", "replace")
    runs = max((int(item) for item in _RUNS.findall(output)), default=0)
    reached = _FEATURES.findall(output)
    known = max((int(ft) for event, ft in reached if event == "INITED"), default=0)
    features = max((int(ft) for _, ft in reached), default=0)
    if done.returncode == 0:
        return Found(runs, known, features, None)
    why = [line for line in output.splitlines() if line.startswith(_TOLD)] or [output[-500:]]
    output = why[0]
    for path in artifacts.iterdir():
        data = path.read_bytes()
        saved = SAVED / name / name_of(data)
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_bytes(data)
        output = f"{saved}: {output}"
    return Found(runs, known, features, output)


def _inside(name: str, arguments: list[str]) -> None:
    import atheris

    # The package imports codecs when a page first needs them: late imports must be instrumented
    # too.
    with atheris.instrument_imports(include=["lance_spark"], enable_loader_override=False):
        _guided(name, arguments)


def _guided(name: str, arguments: list[str]) -> None:
    import atheris

    from lance_spark.errors import LanceError
    from tests.hostile.guard import guarded
    from tests.hostile.targets import TARGETS

    target = TARGETS[name]
    seeds = target.seeds()
    for data in seeds:
        # Late imports do not count for an input.
        with contextlib.suppress(LanceError):
            target.run(data)
    longest = max(_LONGEST, 2 * min(map(len, seeds)))
    corpus = Path(arguments[0])
    for data in seeds:
        if len(data) <= _LARGEST_SEED:
            longest = max(longest, len(data))
            (corpus / name_of(data)).write_bytes(data)

    def try_input(data: bytes) -> None:
        guarded(target.run, data, target.seconds)

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        import random

        rng = random.Random(seed)
        if rng.random() < 0.5:
            try:
                worse = target.mutate(data, rng)
            except Exception:
                # The damaged input cannot be parsed any more: only its bytes can be changed.
                worse = b""
            if 0 < len(worse) <= most:
                return worse
        result: bytes = atheris.Mutate(data, most)
        return result

    command_line = [sys.argv[0], *arguments, f"-max_len={longest}"]
    atheris.Setup(command_line, try_input, custom_mutator=mutated)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Try targets one after the other; return the exit status."""
    if arguments[:1] == ["--inside"]:
        _inside(arguments[1], arguments[2:])
        return 0
    from tests.hostile.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args(arguments)
    failed = False
    for name in options.targets or TARGETS:
        result = fuzz(name, options.seconds)
        summary = f"{result.inputs:9,} inputs, features {result.known:6,} -> {result.features:6,}"
        print(f"{name:24} {summary}", f"FAILED {result.wrong}" if result.wrong else "", flush=True)
        failed |= result.wrong is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
