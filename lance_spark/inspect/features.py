"""Names of what a table's feature flags stand for; see `lance_spark.table.manifest.flags`."""

from __future__ import annotations

from lance_spark.table.manifest import flags

_NAMES = {
    flags.DELETION_FILES: "deletion files",
    flags.STABLE_ROW_IDS: "stable row ids",
    flags.V2_FILES: "files of version 2",
    flags.TABLE_CONFIG: "configuration",
    flags.BASE_PATHS: "base paths",
    flags.NO_TRANSACTION_FILE: "no transaction files",
    flags.OVERLAYS: "data overlay files",
    flags.COVERING_COLUMNS: "covering columns of indexes",
    flags.MIXED_FILE_VERSIONS: "files of several versions",
    flags.TAGGED_FRAGMENT_REUSE: "tagged fragment reuse index",
    flags.ROW_LINEAGE_COLUMNS: "row lineage columns",
    flags.MANAGED_BLOBS: "managed blobs",
    flags.STABLE_FIELD_IDS: "field ids that are never used again",
}
_BITS = 64


def feature_names(bits: int) -> list[str]:
    """Return the names of flags; unknown ones by their number."""
    chosen = [1 << place for place in range(_BITS) if bits >> place & 1]
    return [_NAMES.get(one, f"unknown ({one.bit_length() - 1})") for one in chosen]
