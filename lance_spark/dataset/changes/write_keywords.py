"""Keywords of pylance's writers that the writers of this package do not have."""

from __future__ import annotations

from lance_spark.arguments import Refusals

#: These choose how pylance writes.
UNUSED = ("data_cache_bytes", "max_page_bytes", "max_rows_per_group", "session")
REFUSED: Refusals = {
    "use_legacy_format": ((False,), "give data_storage_version='0.1'"),
    "enable_v2_manifest_paths": ((True,), "manifests of new tables have names of scheme V2"),
}
