"""A process that tries inputs on the targets, and a process that watches it. The first notes each
input in a file before it tries the input, so that the second has the input even if the first dies
or hangs.

The first notes each input in a file before it is tried, so that the second has it even if the
process dies or hangs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

#: Seconds without progress after which a process is killed; an input may take two seconds of the
#: processor.
STUCK = 300.0
#: The number of failures that are shown for each target.
_SHOWN = 5
#: Environment of processes that try inputs.
ENVIRONMENT = {
    # Freed memory goes back to the system, so that the next input cannot reuse it.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
    "RUST_LOG": "error",
}


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes
    ----------
    inputs : Counter of str
        Inputs thrown at each target.
    failures : list of (str, str, bytes)
        Target, what was wrong, and the input.
    """

    inputs: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str, bytes]] = field(default_factory=list)


def throw(seed: int, count: int, seconds: float, names: Sequence[str] = ()) -> Outcome:
    """Throw inputs at the targets, in a process of its own that is started again if it dies.

    Parameters
    ----------
    seed : int
    count : int
        Inputs at most.
    seconds : float
        Wall time at most; nothing new is begun afterwards.
    names : sequence of str
        Targets; all if empty.
    """
    outcome = Outcome()
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        while (left := ends - time.monotonic()) > 0 and outcome.inputs.total() < count:
            before = outcome.inputs.total()
            status, output = _child(seed, count - before, left, names, Path(folder))
            _add(outcome, Path(folder))
            seed += 1
            if status == 0:
                break
            target = (
                (Path(folder) / "target").read_text() if before < outcome.inputs.total() else "?"
            )
            data = (Path(folder) / "input").read_bytes() if target != "?" else b""
            outcome.failures.append((target, f"the process died ({status}): {output[-800:]}", data))
            if target == "?":
                break
    return outcome


def replay(paths: Sequence[Path]) -> list[str]:
    """Try inputs from files, in a process of its own; return the faults of those inputs that did
    harm.

    Parameters
    ----------
    paths : sequence of Path
        Each in a folder that is named like its target.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.hostile.session", "replay", *map(str, paths)],
        capture_output=True,
        env={**os.environ, **ENVIRONMENT},
        cwd=Path(__file__).parents[2],
        check=False,
    )
    lines = done.stdout.decode().splitlines()
    tried = [line.removeprefix("trying ") for line in lines if line.startswith("trying ")]
    result = [line for line in lines if not line.startswith("trying ")]
    if done.returncode or len(tried) != len(paths):
        last = tried[-1] if tried else "nothing"
        result.append(
            f"{last}: the process died ({done.returncode}): {done.stderr.decode()[-800:]}"
        )
    return result


def _replay(paths: Sequence[Path]) -> None:
    from tests.hostile.guard import Breach, guarded
    from tests.hostile.targets import TARGETS

    warm = set()
    for path in paths:
        print(f"trying {path}", flush=True)
        target = TARGETS[path.parent.name]
        if target.name not in warm:
            guarded(target.run, target.seeds()[0])
            warm.add(target.name)
        try:
            guarded(target.run, path.read_bytes(), target.seconds)
        except Breach as breach:
            print(f"{path.parent.name}/{path.name}: {breach}", flush=True)


def _child(
    seed: int, count: int, seconds: float, names: Sequence[str], folder: Path
) -> tuple[int, str]:
    for entry in folder.iterdir():
        entry.unlink()
    with open(folder / "said", "wb") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.hostile.session",
                str(seed),
                str(count),
                str(seconds),
                str(folder),
                *names,
            ],
            stdout=output,
            stderr=output,
            env={**os.environ, **ENVIRONMENT},
            cwd=Path(__file__).parents[2],
        )
        seen, since = None, time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            now = _noted(folder / "inputs")
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STUCK:
                process.kill()
        return process.wait(), (folder / "said").read_text("utf-8", "replace")


def _noted(path: Path) -> Any:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _add(outcome: Outcome, folder: Path) -> None:
    try:
        lines = (folder / "inputs").read_text().split("\n")
    except FileNotFoundError:
        return
    for line in lines:
        name, _, refused = line.partition(" ")
        if name:
            outcome.inputs[name] += 1
            outcome.refused[name] += refused == "refused"
    if (folder / "failures").exists():
        for line in (folder / "failures").read_text().splitlines():
            name, problem, data = json.loads(line)
            outcome.failures.append((name, problem, bytes.fromhex(data)))


def main(seed: int, count: int, seconds: float, folder: Path, names: Sequence[str]) -> None:
    """Try inputs, one after the other; see `throw`."""
    from tests.hostile.guard import Breach, guarded
    from tests.hostile.targets import TARGETS

    rng = random.Random(seed)
    chosen = [TARGETS[name] for name in names] or list(TARGETS.values())
    weights = [item.weight for item in chosen]
    ends = time.monotonic() + seconds
    known: Counter[str] = Counter()
    seeds = {item.name: item.seeds() for item in chosen}
    for chosen_target in chosen:
        # Late imports do not count for an input.
        guarded(chosen_target.run, seeds[chosen_target.name][0])
    with (
        open(folder / "inputs", "w", buffering=1) as inputs,
        open(folder / "failures", "w") as failures,
    ):
        for at in range(count):
            if time.monotonic() > ends:
                return
            # Each target is tried at least once.
            target = chosen[at] if at < len(chosen) else rng.choices(chosen, weights)[0]
            data = target.mutate(rng.choice(seeds[target.name]), rng)
            (folder / "input").write_bytes(data)
            (folder / "target").write_text(target.name)
            inputs.write(f"{target.name} ")
            refused = False
            try:
                refused = guarded(target.run, data, target.seconds) is not None
            except Breach as breach:
                place = str(breach).rpartition("@")[2]
                known[target.name, place] += 1
                if known[target.name, place] == 1 and known[target.name] < _SHOWN * 10:
                    known[target.name] += 1
                    failures.write(json.dumps([target.name, str(breach), data.hex()]) + "\n")
                    failures.flush()
            inputs.write("refused\n" if refused else "read\n")


def name_of(data: bytes) -> str:
    """Return the name under which an input is kept."""
    return sha256(data).hexdigest()[:12]


if __name__ == "__main__":
    if sys.argv[1] == "replay":
        _replay([Path(item) for item in sys.argv[2:]])
        sys.exit()
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
