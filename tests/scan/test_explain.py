"""What `Dataset.explain` says is what a scan does."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import lance_spark


def test_explain(tmp_path: Path) -> None:
    path = tmp_path / "t.lance"
    vectors = pa.FixedSizeListArray.from_arrays(np.ones(30_000 * 64, np.float32), 64)
    random = np.random.default_rng(1).random(30_000 * 64, np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(random, 64)
    dataset = lance.write_dataset(
        pa.table({"id": range(30_000), "v": vectors}), str(path), max_rows_per_file=10_000
    )
    dataset.delete("id < 10")
    text = lance_spark.open_dataset(str(path)).explain(["v"], target_rows=10_000)
    assert text.splitlines() == [
        f"Scan of {path}, version 2",
        "  columns: v",
        "  tasks: 3, of 10,000 to 10,000 rows",
        "  fragments: 3 of 3",
        "  rows to look at: 30,000 of 30,000",
        "  deleted rows in these fragments: 10",
        "  bytes: about 7.3 MiB",
    ]
    dataset.create_scalar_index("id", "ZONEMAP")
    ours = lance_spark.open_dataset(str(path))
    text = ours.explain(["v", "id"], filter="id > 25000")
    assert "  filter: id > 25000\n  tasks: 1," in text
    assert "  fragments: 1 of 3\n  rows to look at: 10,000 of 30,000, the others" in text
    assert "up to 2.4 MiB for the other columns" in text
    assert ours.explain(filter="id > 70000").endswith("statistics rule out all rows")
    assert "columns: none" in ours.explain([], filters=[("id", "<", 15)])
    assert "('id', '<', 15)" in ours.explain([], filters=[("id", "<", 15)])
