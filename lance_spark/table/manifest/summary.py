"""Counts of a version, with the keys of `versions()` in pylance."""

from __future__ import annotations

from lance_spark.table.manifest.manifest import Manifest


def summarize(manifest: Manifest) -> dict[str, str]:
    """Count fragments, files, rows and bytes of a version, from its manifest alone.

    Returns
    -------
    dict of str to str
        ``total_fragments``, ``total_rows`` (not deleted), ``total_data_files``,
        ``total_data_file_rows``, ``total_deletion_files``, ``total_deletion_file_rows`` and
        ``total_files_size`` (recorded bytes of the data files); numbers as text.
    """
    files = rows = deletion_files = deleted = size = 0
    fragments = manifest.message.fragments
    for fragment in fragments:
        files += len(fragment.files)
        rows += fragment.physical_rows
        size += sum(file.file_size_bytes for file in fragment.files)
        if fragment.HasField("deletion_file"):
            deletion_files += 1
            deleted += fragment.deletion_file.num_deleted_rows
    numbers = {
        "total_data_file_rows": rows,
        "total_data_files": files,
        "total_deletion_file_rows": deleted,
        "total_deletion_files": deletion_files,
        "total_files_size": size,
        "total_fragments": len(fragments),
        "total_rows": rows - deleted,
    }
    return {name: str(number) for name, number in numbers.items()}
