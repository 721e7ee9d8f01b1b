"""The cost of a table's metadata, by the number of versions and by the number of fragments: this
package against pylance.

    python benchmarks/table.py [--rounds 5] [--versions 10,100,1000,10000] [--fragments
    100,1000,10000,100000]

The tables consist of manifests alone: their fragments name data files that do not exist. No
measured operation opens these data files. An append writes one row. The tables are on a local disk.
The benchmark prints the median of the rounds.
"""

from __future__ import annotations

import datetime
import itertools
import pickle
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import lance
import pyarrow as pa

import lance_spark
from benchmarks import report
from benchmarks.measuring import median_seconds
from lance_spark.proto import table_pb2
from lance_spark.storage.store import ObjectStore
from lance_spark.table.manifest import versions
from lance_spark.table.manifest.codec import decode, encode, read_manifest

ROW = pa.table({"id": pa.array([0], pa.int64()), "text": ["x"]})
ROWS_OF_A_FRAGMENT = 1_000_000
#: A task reads two fragments of this size.
BYTES_OF_A_FRAGMENT = 64 * 1024 * 1024
#: An operation of this package, and the same operation of pylance, if pylance has such an operation.
Operation = tuple[Callable[[], object], Callable[[], object] | None]


def main() -> None:
    parser = report.argument_parser(__doc__, data=None, scale=False, rounds=5)
    parser.add_argument("--versions", type=_numbers, default=[10, 100, 1_000, 10_000])
    parser.add_argument("--fragments", type=_numbers, default=[100, 1_000, 10_000, 100_000])
    arguments = parser.parse_args()
    print(
        f"pylance {lance.__version__}; milliseconds; in brackets, the ratio to the time of pylance\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        print(_growth("versions", arguments.versions, version_operations, root, arguments.rounds))
        print(
            _growth("fragments", arguments.fragments, fragment_operations, root, arguments.rounds)
        )


def _growth(
    unit: str,
    counts: Sequence[int],
    make_table: Callable[[Path, int], dict[str, Operation]],
    root: Path,
    rounds: int,
) -> str:
    """Return a table of milliseconds, with a line for each count of versions or fragments."""
    columns: list[str] = []
    lines: list[str] = []
    for count in counts:
        path = root / f"{unit}-{count}"
        operations = make_table(path, count)
        cells = [_cell(*operation, rounds) for operation in operations.values()]
        columns = list(operations)
        lines.append(" | ".join([f"{count:,}", *cells]))
        shutil.rmtree(path)
    header = [" | ".join([unit, *columns]), " | ".join(["---:"] * (len(columns) + 1))]
    return "".join(f"| {line} |\n" for line in [*header, *lines])


def _cell(
    by_lance_spark: Callable[[], object], by_pylance: Callable[[], object] | None, rounds: int
) -> str:
    """Return the milliseconds of this package, and their ratio to pylance's in brackets."""
    actions = {"lance_spark": by_lance_spark}
    if by_pylance is not None:
        actions["pylance"] = by_pylance
    seconds = median_seconds(actions, rounds)
    ratio = f" ({seconds['lance_spark'] / seconds['pylance']:.2f})" if by_pylance else ""
    return f"{1000 * seconds['lance_spark']:.1f}{ratio}"


def version_operations(path: Path, count: int) -> dict[str, Operation]:
    """Make a table of many versions, and return the operations to measure."""
    lance.write_dataset(ROW, str(path))
    store = ObjectStore.from_uri(str(path))
    manifest = read_manifest(store, versions.latest(store))
    proto = manifest.to_proto()
    last = proto.timestamp.seconds
    for version in range(2, count + 1):
        proto.version = version
        proto.timestamp.seconds = last - count + version
        manifest_path = versions.NamingScheme.V2.locate(version).path
        (path / manifest_path).write_bytes(encode(proto, None, manifest.transaction_section))
    # The hint file names version 1.
    (path / versions.HINT).unlink(missing_ok=True)
    uri = str(path)
    middle = datetime.datetime.fromtimestamp(last - count // 2)
    cuts = itertools.count(12, 10)
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
        "open by a time": (
            lambda: lance_spark.open_dataset(uri, timestamp=middle),
            lambda: lance.dataset(uri, asof=middle),
        ),
        # Each run removes others, the oldest.
        "remove 10 versions": (
            lambda: lance_spark.open_dataset(uri).cleanup_old_versions(
                before_version=next(cuts), older_than=datetime.timedelta(0)
            ),
            None,
        ),
    }


def fragment_operations(path: Path, count: int) -> dict[str, Operation]:
    """Make a table of many fragments, and return the operations to measure."""
    lance.write_dataset(ROW, str(path))
    store = ObjectStore.from_uri(str(path))
    location = versions.latest(store)
    manifest = read_manifest(store, location)
    proto = manifest.to_proto()
    template = proto.fragments[0]
    template.physical_rows = ROWS_OF_A_FRAGMENT
    template.files[0].file_size_bytes = BYTES_OF_A_FRAGMENT
    fragments = [_copied_fragment(template, number) for number in range(count)]
    del proto.fragments[:]
    proto.fragments.extend(fragments)
    proto.max_fragment_id = count - 1
    data = encode(proto, None, manifest.transaction_section)
    (path / location.path).write_bytes(data)
    uri = str(path)
    removed = itertools.count(1)
    names = (f"{versions.FOLDER}/{number}.spare" for number in itertools.count())

    def write_manifest() -> None:
        store.put_if_absent(next(names), encode(proto, None, manifest.transaction_section))

    def pickle_tasks() -> list[bytes]:
        return [pickle.dumps(task) for task in lance_spark.open_dataset(uri).plan()]

    return {
        "encode and write the manifest": (write_manifest, None),
        "decode the manifest": (lambda: decode(data, "manifest").fragments, None),
        "open": (lambda: lance_spark.open_dataset(uri), lambda: lance.dataset(uri)),
        "open and plan a scan": (
            lambda: lance_spark.open_dataset(uri).plan(),
            lambda: lance.dataset(uri).scanner().explain_plan(),
        ),
        "open, plan and pickle the tasks": (pickle_tasks, None),
        "append one row": (
            lambda: lance_spark.write_dataset(ROW, uri, "append"),
            lambda: lance.write_dataset(ROW, uri, mode="append"),
        ),
        # Appends made the versions.
        "remove a version": (
            lambda: lance_spark.open_dataset(uri).cleanup_old_versions(
                versions=[next(removed)], older_than=datetime.timedelta(0)
            ),
            None,
        ),
    }


def _copied_fragment(template: table_pb2.DataFragment, number: int) -> table_pb2.DataFragment:
    """Return a fragment with another id and another data file."""
    fragment = table_pb2.DataFragment()
    fragment.CopyFrom(template)
    fragment.id = number
    fragment.files[0].path = f"{uuid.uuid4().hex}.lance"
    return fragment


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


if __name__ == "__main__":
    main()
