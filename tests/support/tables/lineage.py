"""Tables with stable row ids after every operation of pylance that moves rows."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa

#: Bytes of lineage that pylance keeps in the manifest, in tables that store longer lineage in
#: hidden columns.
SPILL = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "8"}


def rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "s": [f"s{i}" for i in ids]})


def lived_in(
    path: Path, version: str = "2.2", *, stable: bool = True, spill: bool = False, step: int = 50
) -> lance.LanceDataset:
    """Create, append, update, delete, upsert, delete again, compact, and update once more. Each
    step creates a version.
    """
    uri = str(path)
    options = {"enable_stable_row_ids": stable, "data_storage_version": version}
    lance.write_dataset(rows(0, 2 * step), uri, max_rows_per_file=step, **options)
    if spill:
        lance.dataset(uri).update_config(SPILL)
    lance.write_dataset(rows(2 * step, 3 * step), uri, mode="append")
    lance.dataset(uri).update({"s": "'u'"}, where="id % 3 = 1")
    lance.dataset(uri).delete("id % 7 = 2")
    merge = lance.dataset(uri).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(rows(3 * step - 10, 3 * step + 10))
    lance.dataset(uri).update({"s": "'v'"}, where="id % 5 = 1")
    lance.dataset(uri).delete(f"id > {step // 2} and id < {step}")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=3 * step)
    lance.dataset(uri).update({"s": "'w'"}, where="id % 11 = 1")
    return lance.dataset(uri)


def versions_of(path: Path) -> list[int]:
    return [version["version"] for version in lance.dataset(str(path)).versions()]
