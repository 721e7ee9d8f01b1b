"""Changes of a table without Spark: deletes, updates, new columns, tags, branches, compaction and
cleanup.

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
        "customer": [f"customer {number % 50}" for number in range(1000)],
        "amount": [float(number % 97) for number in range(1000)],
    }
)
table = lance_spark.write_dataset(orders, path, enable_stable_row_ids=True)
for start in range(1000, 1500, 100):
    ids = pa.array(range(start, start + 100), pa.int64())
    more_orders = orders.slice(0, 100).set_column(0, "id", ids)
    table = lance_spark.write_dataset(more_orders, path, mode="append")
print(f"version {table.version}: {table.count_rows()} rows in {len(table.fragments)} fragments")

# A tag names the current version. Later changes do not change the tagged version.
table.tags.create("before-the-audit")

# A delete marks rows as deleted. An update moves rows to a new fragment. The row ids stay.
table = table.delete([("customer", "==", "customer 7")])
table = table.update({"amount": 0.0}, [("amount", "<", 3.0)])
table = table.add_columns({"total": lambda rows: pc.multiply(rows["amount"], 1.19)})
table = table.update_config({"owner": "accounting"})

# A branch shares the files of the table. Changes of the branch do not change the main branch.
trial = table.create_branch("trial")
trial = trial.delete([("id", "<", 500)])
print(f"on the branch {trial.count_rows()} rows, on main {table.count_rows()}")

# Compaction makes few large fragments of many small fragments, without the deleted rows.
table, metrics = table.compact_files()
print(f"compaction: {metrics.fragments_removed} fragments became {metrics.fragments_added}")

for version in table.versions()[-4:]:
    print(version.version, version.timestamp.isoformat(timespec="seconds"), version.operation)

tagged = lance_spark.open_dataset(path, tag="before-the-audit")
print(f"as tagged: {tagged.count_rows()} rows, now: {table.count_rows()}")

# Cleanup removes the files that no remaining version, no tag and no branch needs.
statistics = table.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
print(f"cleanup: {statistics.old_versions} versions, {statistics.bytes_removed} bytes")
assert lance_spark.open_dataset(path, tag="before-the-audit").count_rows() == 1500
