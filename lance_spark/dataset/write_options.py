"""The options of a write, and keywords of pylance's methods that this package does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from lance_spark.arguments import Refusals
from lance_spark.keywords import Keyword
from lance_spark.progress import ProgressKeywords
from lance_spark.table.commit.options import MessageKeywords, PropertyKeywords

if TYPE_CHECKING:
    from lance_spark.storage.commit import CommitLock, ManifestStore
    from lance_spark.table.bases import BaseLike
    from lance_spark.table.fragments.writer import FragmentWriteProgress

#: These choose how pylance writes.
UNUSED = ("data_cache_bytes", "max_page_bytes", "max_rows_per_group", "session")
REFUSED: Refusals = {
    "use_legacy_format": ((False,), "give data_storage_version='0.1'"),
    "enable_v2_manifest_paths": ((True,), "manifests of new tables have names of scheme V2"),
}
#: Options of a compaction that choose how pylance copies.
UNUSED_OF_COMPACTION = (
    "batch_size",
    "binary_copy_read_batch_bytes",
    "compaction_mode",
    "io_buffer_size",
    "max_rows_per_group",
)
REFUSED_OF_COMPACTION: Refusals = {
    "data_storage_version": ((), "new files have the file version of the table")
}
REFUSED_OF_INDEXES: Refusals = {"index_uuid": ((), "each segment gets an id of its own")}
REFUSED_OF_VECTORS: Refusals = {
    **REFUSED_OF_INDEXES,
    "ivf_centroids_file": ((), "give ivf_centroids"),
    "precomputed_partition_dataset": ((), "give ivf_centroids: vectors are assigned to them"),
}


class FileKeywords(TypedDict, total=False):
    """Keywords of calls that write new files of a table."""

    data_storage_version: Annotated[
        str | None,
        Keyword(
            "File version: ``2.0``, ``2.1``, ``2.2`` or ``stable`` (2.2, the default for new "
            "tables), or ``0.1`` (``legacy``). An append uses the version of the table. Version "
            "2.0 cannot store maps and null structs. Version 0.1 can store nulls only in strings "
            "and binary columns, and refuses other nulls."
        ),
    ]
    max_rows_per_file: Annotated[
        int | None,
        Keyword("Number of rows at which a data file is closed; 1,048,576 by default.", 1 << 20),
    ]
    max_bytes_per_file: Annotated[
        int | None,
        Keyword("Size in bytes at which a data file is closed; 90 GiB by default.", 90 << 30),
    ]
    enable_stable_row_ids: Annotated[
        bool, Keyword("Whether a new table has stable row ids, which survive compaction.", False)
    ]
    auto_cleanup_options: Annotated[
        Mapping[str, int] | None,
        Keyword(
            "Turns on cleanup after commits of a new table: ``interval`` (versions between two "
            "cleanups) and ``older_than_seconds``."
        ),
    ]
    external_blob_mode: Annotated[
        Literal["reference", "ingest"],
        Keyword(
            "Handling of blobs that are given as URIs: ``reference`` stores the URI, ``ingest`` "
            "copies the bytes.",
            "reference",
        ),
    ]
    allow_external_blob_outside_bases: Annotated[
        bool,
        Keyword(
            "Whether stored URIs may refer to files outside of base paths. Nothing protects such "
            "files from being deleted.",
            False,
        ),
    ]
    blob_pack_file_size_threshold: Annotated[
        int | None,
        Keyword("Size in bytes at which a file of packed blobs is closed; by default 1 GiB."),
    ]
    commit_retries: Annotated[
        int | None,
        Keyword(
            "Maximum number of times to retry the commit after other clients committed first; by "
            "default 20."
        ),
    ]
    branch: Annotated[
        str | None,
        Keyword(
            "The existing branch to write to, ``main`` for the main branch. By default, the branch "
            "that the URI is the root of."
        ),
    ]
    initial_bases: Annotated[
        Sequence[BaseLike] | None,
        Keyword(
            "Base paths of a new table: `BasePath`, or pylance's `DatasetBasePath`. An existing "
            "table must have them already; see `Dataset.add_bases`."
        ),
    ]
    target_bases: Annotated[
        Sequence[str] | None,
        Keyword(
            "Names or paths of the base paths that new data files go to in turn; the path of the "
            "table stands for its own root."
        ),
    ]
    target_all_bases: Annotated[
        bool | None,
        Keyword(
            "True: new data files go to the table's root and all base paths in turn; False: to all "
            "base paths in turn."
        ),
    ]


class ObserverKeywords(TypedDict, total=False):
    """Keywords of calls that report the fragments that they write."""

    progress: Annotated[
        FragmentWriteProgress | None,
        Keyword("The writer calls it for each fragment that it begins and completes."),
    ]


class InsertKeywords(
    FileKeywords, MessageKeywords, PropertyKeywords, ObserverKeywords, ProgressKeywords, total=False
):
    """Keywords of calls that write rows in one commit."""

    txn_app_id: Annotated[
        str | None,
        Keyword(
            "Id of the writing application. If the table already has the write `txn_version` or a "
            "later one of this application, nothing is written, and the version with that write is "
            "returned."
        ),
    ]
    txn_version: Annotated[int | None, Keyword("Number of the write of the application.")]
    storage_options: Annotated[Mapping[str, Any] | None, Keyword("Settings of the store.")]


class PlaceKeywords(TypedDict, total=False):
    """Keywords of `write_dataset` that say where the table is, and how commits reach it."""

    base_store_params: Annotated[
        Mapping[str, Mapping[str, Any]] | None,
        Keyword(
            "Storage options of base paths, by their paths; as in `open_dataset`. Each path must "
            "be a base path of the table or of `initial_bases`."
        ),
    ]
    manifest_store: Annotated[ManifestStore | str | None, Keyword("As in `open_dataset`.")]
    commit_lock: Annotated[CommitLock | None, Keyword("As in `open_dataset`.")]
    namespace_client: Annotated[
        object | None,
        Keyword(
            "As in `open_dataset`. With the mode ``create``, the namespace chooses the place of "
            "the table; with other modes, it must have the table."
        ),
    ]
    table_id: Annotated[Sequence[str] | None, Keyword("As in `open_dataset`.")]


class WriteKeywords(InsertKeywords, PlaceKeywords, total=False):
    """Keywords of `write_dataset`."""


class FragmentKeywords(FileKeywords, PropertyKeywords, ObserverKeywords, total=False):
    """Keywords of `write_fragments`."""

    base_store_params: Annotated[
        Mapping[str, Mapping[str, Any]] | None, Keyword("As in `write_dataset`.")
    ]
    storage_options: Annotated[
        Mapping[str, Any] | None,
        Keyword("Settings of the store; by default those of the `Dataset`."),
    ]
