"""A table changes and keeps its history: deletes, updates, new columns, tags, branches, compaction,
cleanup. Without Spark.

python examples/tables.py [FOLDER]
"""

import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lance_spark

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
path = str(folder / "orders.lance")

orders = pa.table(
    {
        "id": pa.array(range(1000), pa.int64()),
        "customer": [f"customer {i % 50}" for i in range(1000)],
        "amount": [float(i % 97) for i in range(1000)],
    }
)
table = lance_spark.write_dataset(orders, path, enable_stable_row_ids=True)
for start in range(1000, 1500, 100):
    few = orders.slice(0, 100).set_column(0, "id", pa.array(range(start, start + 100), pa.int64()))
    table = lance_spark.write_dataset(few, path, mode="append")
print(f"version {table.version}: {table.count_rows()} rows in {len(table.fragments)} fragments")

# A name for what there is now; changes go on without it.
table.tags.create("before-the-audit")

# Deleted rows are marked, updated ones move: their ids stay.
table = table.delete([("customer", "==", "customer 7")])
table = table.update({"amount": 0.0}, [("amount", "<", 3.0)])
table = table.add_columns({"total": lambda rows: pc.multiply(rows["amount"], 1.19)})
table = table.update_config({"owner": "accounting"})

# A branch shares the files of the table, and nobody sees what is tried on it.
trial = table.create_branch("trial")
trial = trial.delete([("id", "<", 500)])
print(f"on the branch {trial.count_rows()} rows, on main {table.count_rows()}")

# Many small fragments become few, without the deleted rows.
table, metrics = table.compact_files()
print(f"compaction: {metrics.fragments_removed} fragments became {metrics.fragments_added}")

for version in table.versions()[-4:]:
    print(version.version, version.timestamp.isoformat(timespec="seconds"), version.operation)

tagged = lance_spark.open_dataset(path, tag="before-the-audit")
print(f"as tagged: {tagged.count_rows()} rows, now: {table.count_rows()}")

# What neither a version that is kept, nor a tag, nor a branch needs.
removed = table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
print(f"cleanup: {removed.old_versions} versions, {removed.bytes_removed} bytes")
assert lance_spark.open_dataset(path, tag="before-the-audit").count_rows() == 1500
