"""Updates of a few rows by overlays, beside the other modes: what they cost, and what reads cost
afterwards.

    python -m benchmarks.overlays [--rows 4000000] [--rounds 3] [--folder FOLDER]

The table has four fragments, and a column of numbers, of texts and of vectors beside the key. An
update of the numbers changes some rows, chosen by their keys, whose index finds them. Each mode
changes a copy of the table (hard links). Times are processor time, medians of the rounds, in which
the modes take turns. Bytes are those of new files below `data/` and `_deletions/`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lance_spark
from benchmarks.measuring import median_used
from benchmarks.tables import copy_table

MODES = ("rows", "columns", "overlay")
CHANGED = (1, 100, 10_000, 400_000)
#: Updates one after the other, each of other rows.
UPDATES = 10


def write(path: Path, rows: int) -> None:
    """Write the table and its index."""
    rng = np.random.default_rng(0)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(16 * rows, np.float32)), 16)
    keys = rng.permutation(rows)
    columns = {
        "key": pa.array(keys),
        "number": pa.array(rng.integers(0, 1 << 40, rows)),
        "text": pa.array(keys).cast(pa.string()),
        "vector": vectors,
    }
    table = pa.table(columns)
    dataset = lance_spark.write_dataset(table, str(path), max_rows_per_file=-(-rows // 4))
    dataset.create_scalar_index("key", "BTREE")


def stored_bytes(path: Path) -> int:
    """Return the bytes of data files and deletion files."""
    return sum(
        file.stat().st_size
        for folder in ("data", "_deletions")
        for file in (path / folder).rglob("*")
        if file.is_file()
    )


def update(path: Path, mode: str, first: int, count: int) -> None:
    """Change the numbers of rows with keys from `first` on."""
    condition = f"key >= {first} AND key < {first + count}"
    lance_spark.open_dataset(str(path)).update({"number": -1}, condition, mode=mode)  # type: ignore[arg-type]


def reads(path: Path) -> dict[str, Callable[[], object]]:
    """Return the reads that are measured."""
    dataset = lance_spark.open_dataset(str(path))
    return {
        "scan": lambda: dataset.to_table(["number"]),
        "filter": lambda: dataset.to_table(["number"], filter="key = 12345"),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        source = folder / "source"
        write(source, arguments.rows)
        print("| rows changed | mode | processor time | time / overlay | bytes written |")
        print("|---|---|---|---|---|")
        for count in CHANGED:
            one_update(folder, source, count, arguments.rounds)
        print()
        print(f"After {UPDATES} updates of 100 rows:")
        print("| mode | scan of the column / before | filter by the index / before |")
        print("|---|---|---|")
        many_updates(folder, source, arguments.rounds)


def one_update(folder: Path, source: Path, count: int, rounds: int) -> None:
    """Print what an update of some rows costs in each mode."""
    written: dict[str, int] = {}

    def change(mode: str) -> Callable[[], object]:
        def run() -> None:
            path = folder / mode
            copy_table(source, path)
            update(path, mode, 1000, count)
            written[mode] = stored_bytes(path) - stored_bytes(source)
            shutil.rmtree(path)

        return run

    used = median_used({mode: change(mode) for mode in MODES}, rounds)
    least = used["overlay"].processor
    for mode in MODES:
        seconds = used[mode].processor
        print(
            f"| {count:,} | {mode} | {seconds:.3f} s | {seconds / least:.1f} | {written[mode]:,} |"
        )


def many_updates(folder: Path, source: Path, rounds: int) -> None:
    """Print what reads cost after updates, by what they cost before."""
    actions = {("before", name): action for name, action in reads(source).items()}
    for mode in (*MODES, "overlay, compacted"):
        path = folder / mode
        copy_table(source, path)
        for number in range(UPDATES):
            update(path, mode.split(",")[0], 5000 * number, 100)
        if "compacted" in mode:
            dataset = lance_spark.open_dataset(str(path))
            dataset.compact_files(max_overlays_per_fragment=0)
        actions |= {(mode, name): action for name, action in reads(path).items()}
    used = median_used({" ".join(key): action for key, action in actions.items()}, rounds)
    for mode in (*MODES, "overlay, compacted"):
        ratios = [
            used[f"{mode} {name}"].processor / used[f"before {name}"].processor
            for name in ("scan", "filter")
        ]
        print(f"| {mode} | {ratios[0]:.2f} | {ratios[1]:.2f} |")


if __name__ == "__main__":
    main()
