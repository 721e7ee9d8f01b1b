"""How the time of a MERGE grows with the rows of the table: by SQL, and by the local API.

    python benchmarks/merge_growth.py [--data DIR] [--rounds 2] [--millions 4,40,400] [--index]
        [--keep]

The tables have the six columns of `sql_changes.py`, in fragments of 500,000 rows. The fragments have
a file of keys of their own and share the file of the other columns, so that a large table takes
little of the disk. Each merge of 100,000 rows, half of them new, changes a copy of the table. With
`--index`, the tables also get a B-tree of the key. The local API has a process of its own. The first
round warms up; the least seconds of the others are shown, beside those in which the session of SQL
sums the keys, and the ratios of all to those of the smallest table.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import report
from benchmarks.measuring import run_in_turns, run_python, seconds_of
from benchmarks.sql_changes import LARGE, MERGE, Served
from benchmarks.tables import copy_table, write_once

FRAGMENT_ROWS = 500_000
#: Written by a process of its own, so that the process of Spark does not load pylance.
WRITE = f"""
import sys
from pathlib import Path
import lance, numpy as np, pyarrow as pa, pyarrow.parquet as pq
from lance.file import LanceFileWriter
from benchmarks.sql_changes import rows_of
path, rows, index, source = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "index", sys.argv[4]
size = {FRAGMENT_ROWS}
template = rows_of(size, 0, 1)
lance.write_dataset(template.slice(0, 0), path, data_storage_version="2.1")
(path / "data").mkdir(exist_ok=True)

def write(name, table):
    with LanceFileWriter(str(path / "data" / name), table.schema, version="2.1") as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)

def file(name, fields):
    indices, length = list(range(len(fields))), (path / "data" / name).stat().st_size
    return lance.fragment.DataFile(name, fields, indices, 2, 1, length)

write("others.lance", template.drop(["id"]))
fragments = []
for number in range(rows // size):
    write(f"{{number}}.lance", pa.table({{"id": np.arange(number * size, (number + 1) * size)}}))
    files = [file(f"{{number}}.lance", [0]), file("others.lance", [1, 2, 3, 4, 5])]
    fragments.append(lance.fragment.FragmentMetadata(number, files, size))
operation = lance.LanceOperation.Overwrite(template.schema, fragments)
table = lance.LanceDataset.commit(str(path), operation, read_version=1)
assert table.count_rows() == rows
if index:
    import lance_spark

    # Its memory is bounded, also for some hundred million rows.
    lance_spark.open_dataset(str(path)).create_scalar_index("id", "BTREE")
count = {LARGE}
old = np.random.default_rng(2).choice(rows, count // 2, replace=False)
ids = np.concatenate([old, np.arange(rows, rows + count - len(old))])
changed = rows_of(count, 0, 3).set_column(0, "id", pa.array(np.random.default_rng(4).permutation(ids)))
pq.write_table(changed, source)
"""


def main() -> None:
    parser = report.argument_parser(__doc__, rounds=2, scale=False, data="demo-data/merge-growth")
    parser.add_argument("--millions", default="4,40,400", help="millions of rows of the tables")
    parser.add_argument("--index", action="store_true", help="also with a B-tree of the key")
    parser.add_argument("--keep", action="store_true", help="keep the tables for the next run")
    arguments = parser.parse_args()
    folder = arguments.data.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    import lance_spark
    from benchmarks.spark import session

    root = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    spark = session()
    lance_spark.enable(spark, "lance", root=str(root))
    local = Served("local")
    copies = 0

    def merge(client: str, path: Path, source: Path) -> float:
        nonlocal copies
        copies += 1
        copy = root / f"t{copies}.lance"
        copy_table(path, copy)
        if client == "local":
            seconds = local.change("merge", str(copy), str(source))
        else:
            spark.read.parquet(str(source)).createOrReplaceTempView("source")
            seconds = seconds_of(lambda: spark.sql(f"MERGE INTO lance.t{copies} t {MERGE}"))
        shutil.rmtree(copy)
        return seconds

    def keys(path: Path) -> float:
        frame = spark.read.format("lance").load(str(path)).selectExpr("bit_xor(id)")
        return seconds_of(frame.collect)

    lines: list[list[str]] = []
    for title in ("no index", *(["B-tree"] if arguments.index else [])):
        first: list[float] = []
        for millions in map(float, arguments.millions.split(",")):
            rows, kind = int(millions * 1e6), title.split()[-1]
            source = folder / f"source-{rows}.parquet"

            def write(
                target: Path, kind: str = kind, count: int = rows, made: Path = source
            ) -> None:
                run_python(
                    WRITE,
                    str(target),
                    str(count),
                    "index" if kind == "B-tree" else "none",
                    str(made),
                )

            path = write_once(folder / f"{rows}-{kind}.lance", write)
            actions = {
                "SQL": partial(merge, "SQL", path, source),
                "local": partial(merge, "local", path, source),
                "keys": partial(keys, path),
            }
            least = [min(part) for part in run_in_turns(actions, arguments.rounds).values()]
            first = first or least
            ratios = [f"{now / before:.1f}" for now, before in zip(least, first, strict=True)]
            lines.append([title, f"{millions:g} M", *(f"{value:.2f}" for value in least), *ratios])
            print(" | ".join(lines[-1]), flush=True)
            if not arguments.keep:
                shutil.rmtree(path)
    local.close()
    spark.stop()
    shutil.rmtree(root)
    kinds = ["SQL", "local", "keys"]
    header = ["table", "rows", *(f"{kind}, s" for kind in kinds)]
    header += [f"{kind}, times" for kind in kinds]
    print(f"\n{report.table(header, lines)}")


if __name__ == "__main__":
    main()
