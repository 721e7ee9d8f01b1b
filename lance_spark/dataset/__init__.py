"""Tables without Spark: open, scan, take, change and write them.

`open_dataset` and `write_dataset` return a `Dataset`. The other names are the types of its
arguments and results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark._lazy import lazy_exports

if TYPE_CHECKING:
    from lance_spark.dataset.branches import Branches, BranchInfo
    from lance_spark.dataset.changes.compaction import (
        Compaction,
        CompactionPlan,
        CompactionTask,
        RewriteResult,
    )
    from lance_spark.dataset.changes.merge_insert import MergeInsertBuilder
    from lance_spark.dataset.changes.merge_rows import MergeResult
    from lance_spark.dataset.dataset import Dataset, open_dataset
    from lance_spark.dataset.delta import DatasetDelta
    from lance_spark.dataset.files.models import IvfModel, PqModel
    from lance_spark.dataset.files.reader import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileReader,
        LanceFileStatistics,
        LancePageMetadata,
        stable_version,
    )
    from lance_spark.dataset.files.session import (
        LanceFileSession,
        ListResult,
    )
    from lance_spark.dataset.files.writer import (
        LanceFileWriter,
    )
    from lance_spark.dataset.fragments.fragment import DatasetFragment
    from lance_spark.dataset.fragments.operations import LanceOperation
    from lance_spark.dataset.fragments.write import write_fragments
    from lance_spark.dataset.fresh.rows import FreshRows
    from lance_spark.dataset.fresh.scanners import (
        ExecutionPlan,
        LsmPointLookupPlanner,
        LsmScanner,
        LsmVectorSearchPlanner,
    )
    from lance_spark.dataset.fresh.snapshots import ShardSnapshot
    from lance_spark.dataset.lance_schema import LanceSchema
    from lance_spark.dataset.mem_wal import evaluate_sharding_spec
    from lance_spark.dataset.optimizer import DatasetOptimizer
    from lance_spark.dataset.rows.blob_values import Blob, BlobType, blob_array, blob_field
    from lance_spark.dataset.rows.sql import SqlQuery, SqlQueryBuilder
    from lance_spark.dataset.scanning.arrow_dataset import ArrowDataset
    from lance_spark.dataset.scanning.ordered import ColumnOrdering
    from lance_spark.dataset.scanning.scanner import Scanner
    from lance_spark.dataset.scanning.statistics import ScanStatistics
    from lance_spark.dataset.session import Session
    from lance_spark.dataset.stats import (
        DatasetStatistics,
        DataStatistics,
        FieldStatistics,
    )
    from lance_spark.dataset.tags import TagInfo, Tags
    from lance_spark.dataset.write import write_dataset
    from lance_spark.mem_wal.cleanup import MemWalCleanup
    from lance_spark.mem_wal.setup.shards import ShardDescription
    from lance_spark.mem_wal.writing.writer import ShardWriter
    from lance_spark.mutations.compaction.task import CompactionMetrics
    from lance_spark.mutations.indexes.check import IndexCheck
    from lance_spark.mutations.indexes.existing import IndexDescription, IndexSegment
    from lance_spark.scan.blob_files import BlobFile
    from lance_spark.scan.task import ScanTask
    from lance_spark.storage.io_counts import IOStats
    from lance_spark.table.cleanup.run import CleanupStats, RemovedFile
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.fragments.files import DataFile, DeletionFile
    from lance_spark.table.fragments.fragment import Fragment
    from lance_spark.table.fragments.write_progress import FragmentWriteProgress
    from lance_spark.table.indexes.metadata import Index, IndexFile
    from lance_spark.table.manifest.history import VersionInfo
    from lance_spark.table.mem_wal.details import ShardingField, ShardingSpec
    from lance_spark.table.open import Reference
    from lance_spark.table.refs.branch_repair import BranchRepair

__all__ = [
    "IvfModel",
    "PqModel",
    "LanceSchema",
    "Blob",
    "BlobType",
    "blob_array",
    "blob_field",
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileStatistics",
    "LancePageMetadata",
    "stable_version",
    "LanceFileSession",
    "ListResult",
    "LanceFileWriter",
    "MemWalCleanup",
    "ShardDescription",
    "ShardWriter",
    "ShardingField",
    "ShardingSpec",
    "evaluate_sharding_spec",
    "DeletionFile",
    "DataFile",
    "write_fragments",
    "LanceOperation",
    "DatasetFragment",
    "ArrowDataset",
    "ScanStatistics",
    "Scanner",
    "ColumnOrdering",
    "BlobFile",
    "BranchInfo",
    "BranchRepair",
    "Branches",
    "CleanupStats",
    "Compaction",
    "CompactionMetrics",
    "CompactionPlan",
    "CompactionTask",
    "RewriteResult",
    "Session",
    "Dataset",
    "ExecutionPlan",
    "DatasetDelta",
    "DatasetOptimizer",
    "DatasetStatistics",
    "DataStatistics",
    "FieldStatistics",
    "MergeInsertBuilder",
    "MergeResult",
    "Fragment",
    "FragmentWriteProgress",
    "FreshRows",
    "IOStats",
    "Index",
    "IndexCheck",
    "IndexDescription",
    "IndexFile",
    "IndexSegment",
    "LsmPointLookupPlanner",
    "LsmScanner",
    "LsmVectorSearchPlanner",
    "Reference",
    "RemovedFile",
    "ScanTask",
    "ShardSnapshot",
    "SqlQuery",
    "SqlQueryBuilder",
    "TagInfo",
    "Tags",
    "Transaction",
    "VersionInfo",
    "open_dataset",
    "write_dataset",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(
        globals(),
        {
            "IvfModel": "lance_spark.dataset.files.models",
            "PqModel": "lance_spark.dataset.files.models",
            "LanceSchema": "lance_spark.dataset.lance_schema",
            "Blob": "lance_spark.dataset.rows.blob_values",
            "BlobType": "lance_spark.dataset.rows.blob_values",
            "blob_array": "lance_spark.dataset.rows.blob_values",
            "blob_field": "lance_spark.dataset.rows.blob_values",
            "LanceBufferDescriptor": "lance_spark.dataset.files.reader",
            "LanceColumnMetadata": "lance_spark.dataset.files.reader",
            "LanceFileMetadata": "lance_spark.dataset.files.reader",
            "LanceFileReader": "lance_spark.dataset.files.reader",
            "LanceFileStatistics": "lance_spark.dataset.files.reader",
            "LancePageMetadata": "lance_spark.dataset.files.reader",
            "stable_version": "lance_spark.dataset.files.reader",
            "LanceFileSession": "lance_spark.dataset.files.session",
            "ListResult": "lance_spark.dataset.files.session",
            "LanceFileWriter": "lance_spark.dataset.files.writer",
            "MemWalCleanup": "lance_spark.mem_wal.cleanup",
            "ShardDescription": "lance_spark.mem_wal.setup.shards",
            "ShardWriter": "lance_spark.mem_wal.writing.writer",
            "ShardingField": "lance_spark.table.mem_wal.details",
            "ShardingSpec": "lance_spark.table.mem_wal.details",
            "evaluate_sharding_spec": "lance_spark.dataset.mem_wal",
            "DeletionFile": "lance_spark.table.fragments.files",
            "DataFile": "lance_spark.table.fragments.files",
            "write_fragments": "lance_spark.dataset.fragments.write",
            "LanceOperation": "lance_spark.dataset.fragments.operations",
            "DatasetFragment": "lance_spark.dataset.fragments.fragment",
            "ArrowDataset": "lance_spark.dataset.scanning.arrow_dataset",
            "ScanStatistics": "lance_spark.dataset.scanning.statistics",
            "Scanner": "lance_spark.dataset.scanning.scanner",
            "ColumnOrdering": "lance_spark.dataset.scanning.ordered",
            "BlobFile": "lance_spark.scan.blob_files",
            "BranchInfo": "lance_spark.dataset.branches",
            "BranchRepair": "lance_spark.table.refs.branch_repair",
            "Branches": "lance_spark.dataset.branches",
            "CleanupStats": "lance_spark.table.cleanup.run",
            "Compaction": "lance_spark.dataset.changes.compaction",
            "CompactionPlan": "lance_spark.dataset.changes.compaction",
            "CompactionTask": "lance_spark.dataset.changes.compaction",
            "RewriteResult": "lance_spark.dataset.changes.compaction",
            "Session": "lance_spark.dataset.session",
            "CompactionMetrics": "lance_spark.mutations.compaction.task",
            "Dataset": "lance_spark.dataset.dataset",
            "ExecutionPlan": "lance_spark.dataset.fresh.scanners",
            "DatasetDelta": "lance_spark.dataset.delta",
            "DatasetOptimizer": "lance_spark.dataset.optimizer",
            "DatasetStatistics": "lance_spark.dataset.stats",
            "DataStatistics": "lance_spark.dataset.stats",
            "FieldStatistics": "lance_spark.dataset.stats",
            "MergeInsertBuilder": "lance_spark.dataset.changes.merge_insert",
            "MergeResult": "lance_spark.dataset.changes.merge_rows",
            "Fragment": "lance_spark.table.fragments.fragment",
            "FragmentWriteProgress": "lance_spark.table.fragments.write_progress",
            "FreshRows": "lance_spark.dataset.fresh.rows",
            "IOStats": "lance_spark.storage.io_counts",
            "Index": "lance_spark.table.indexes.metadata",
            "IndexFile": "lance_spark.table.indexes.metadata",
            "IndexCheck": "lance_spark.mutations.indexes.check",
            "IndexDescription": "lance_spark.mutations.indexes.existing",
            "IndexSegment": "lance_spark.mutations.indexes.existing",
            "LsmPointLookupPlanner": "lance_spark.dataset.fresh.scanners",
            "LsmScanner": "lance_spark.dataset.fresh.scanners",
            "LsmVectorSearchPlanner": "lance_spark.dataset.fresh.scanners",
            "Reference": "lance_spark.table.open",
            "RemovedFile": "lance_spark.table.cleanup.run",
            "ScanTask": "lance_spark.scan.task",
            "ShardSnapshot": "lance_spark.dataset.fresh.snapshots",
            "SqlQuery": "lance_spark.dataset.rows.sql",
            "SqlQueryBuilder": "lance_spark.dataset.rows.sql",
            "TagInfo": "lance_spark.dataset.tags",
            "Tags": "lance_spark.dataset.tags",
            "Transaction": "lance_spark.table.commit.transaction",
            "VersionInfo": "lance_spark.table.manifest.history",
            "open_dataset": "lance_spark.dataset.dataset",
            "write_dataset": "lance_spark.dataset.write",
        },
    )
