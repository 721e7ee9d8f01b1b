"""How a table's own costs grow: with the number of its versions, and with the number of its
fragments; beside pylance.

    python benchmarks/table.py [--rounds 5] [--versions 10,100,1000,10000] [--fragments
    100,1000,10000,100000]

The tables are made of manifests alone: their fragments name data files that are not there, which
nothing measured here opens. Appends write one row. Local disk; the median of the rounds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance
import pyarrow as pa

import lance_spark
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import decode, encode, read_manifest

ROW = pa.table({"id": pa.array([0], pa.int64()), "text": ["x"]})
ROWS_OF_A_FRAGMENT = 1_000_000
# Two of them make a task.
BYTES_OF_A_FRAGMENT = 64 * 1024 * 1024
NAMES = ("lance_spark", "pylance")
Calls = tuple[Callable[[], object], Callable[[], object] | None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--versions", type=_numbers, default=[10, 100, 1_000, 10_000])
    parser.add_argument("--fragments", type=_numbers, default=[100, 1_000, 10_000, 100_000])
    arguments = parser.parse_args()
    print(
        f"pylance {lance.__version__}; milliseconds, and the part of pylance's time in brackets\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        print(_grown("versions", arguments.versions, _of_versions, root, arguments.rounds))
        print(_grown("fragments", arguments.fragments, _of_fragments, root, arguments.rounds))


def _grown(
    what: str,
    counts: Sequence[int],
    calls_of: Callable[[Path, int], dict[str, Calls]],
    root: Path,
    rounds: int,
) -> str:
    columns: list[str] = []
    lines: list[str] = []
    for count in counts:
        path = root / f"{what}-{count}"
        calls = calls_of(path, count)
        cells = [_cell(ours, theirs, rounds) for ours, theirs in calls.values()]
        columns = list(calls)
        lines.append(" | ".join([f"{count:,}", *cells]))
        shutil.rmtree(path)
    head = [" | ".join([what, *columns]), " | ".join(["---:"] * (len(columns) + 1))]
    return "".join(f"| {line} |\n" for line in [*head, *lines])


def _cell(ours: Callable[[], object], theirs: Callable[[], object] | None, rounds: int) -> str:
    calls = [call for call in (ours, theirs) if call is not None]
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, times in zip(calls, seconds, strict=True):
            start = time.perf_counter()
            call()
            # The first round loads modules.
            if number:
                times.append(time.perf_counter() - start)
    medians = [statistics.median(times) for times in seconds]
    ratio = f" ({medians[0] / medians[1]:.2f})" if theirs is not None else ""
    return f"{1000 * medians[0]:.1f}{ratio}"


def _of_versions(path: Path, count: int) -> dict[str, Calls]:
    lance.write_dataset(ROW, str(path))
    store = ObjectStore.from_uri(str(path))
    manifest = read_manifest(store, versions.latest(store))
    proto = manifest.to_proto()
    for version in range(2, count + 1):
        proto.version = version
        place = versions.NamingScheme.V2.locate(version).path
        (path / place).write_bytes(encode(proto, None, manifest.transaction_section))
    # It names the first.
    (path / versions.HINT).unlink(missing_ok=True)
    uri = str(path)
    return {
        "open the newest": (
            lambda: lance_spark.open_dataset(uri),
            lambda: lance.dataset(uri),
        ),
        "open version 1": (
            lambda: lance_spark.open_dataset(uri, 1),
            lambda: lance.dataset(uri, 1),
        ),
        "append one row": (
            lambda: lance_spark.write_dataset(ROW, uri, "append"),
            lambda: lance.write_dataset(ROW, uri, mode="append"),
        ),
        "list versions": (
            lambda: lance_spark.open_dataset(uri).versions(),
            lambda: lance.dataset(uri).versions(),
        ),
    }


def _of_fragments(path: Path, count: int) -> dict[str, Calls]:
    lance.write_dataset(ROW, str(path))
    store = ObjectStore.from_uri(str(path))
    location = versions.latest(store)
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    first = proto.fragments[0]
    first.physical_rows = ROWS_OF_A_FRAGMENT
    first.files[0].file_size_bytes = BYTES_OF_A_FRAGMENT
    fragments = [_renamed(first, number) for number in range(count)]
    del proto.fragments[:]
    proto.fragments.extend(fragments)
    proto.max_fragment_id = count - 1
    data = encode(proto, None, manifest.transaction_section)
    (path / location.path).write_bytes(data)
    uri = str(path)
    spare = iter(range(10**6, 2 * 10**6))

    def write_manifest() -> None:
        place = f"{versions.FOLDER}/{next(spare)}.spare"
        store.put_if_absent(place, encode(proto, None, manifest.transaction_section))

    ours = lance_spark.open_dataset(uri)
    return {
        "encode and write the manifest": (write_manifest, None),
        "decode it": (lambda: decode(data, "manifest").fragments, None),
        "open": (lambda: lance_spark.open_dataset(uri), lambda: lance.dataset(uri)),
        "open and plan a scan": (
            lambda: lance_spark.open_dataset(uri).plan(),
            lambda: lance.dataset(uri).scanner().explain_plan(),
        ),
        "open, plan and pickle the tasks": (lambda: _pickled(ours), None),
        "append one row": (
            lambda: lance_spark.write_dataset(ROW, uri, "append"),
            lambda: lance.write_dataset(ROW, uri, mode="append"),
        ),
    }


def _pickled(dataset: lance_spark.Dataset) -> list[bytes]:
    import pickle

    fresh = lance_spark.open_dataset(dataset.uri)
    return [pickle.dumps(task) for task in fresh.plan()]


def _renamed(first: table_pb2.DataFragment, number: int) -> table_pb2.DataFragment:
    fragment = table_pb2.DataFragment()
    fragment.CopyFrom(first)
    fragment.id = number
    fragment.files[0].path = f"{uuid.uuid4().hex}.lance"
    return fragment


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
