"""Tables without Spark: open, scan, take, change and write them.

`open_dataset` and `write_dataset` return a `Dataset`. The other names are the types of its
arguments and results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark._lazy import lazy_exports

if TYPE_CHECKING:
    from lance_spark.dataset.arrow_dataset import ArrowDataset
    from lance_spark.dataset.blobs import Blob, BlobType, blob_array, blob_field
    from lance_spark.dataset.compaction import (
        Compaction,
        CompactionPlan,
        CompactionTask,
        RewriteResult,
    )
    from lance_spark.dataset.dataset import Dataset, open_dataset
    from lance_spark.dataset.delta import DatasetDelta
    from lance_spark.dataset.files import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceFileMetadata,
        LanceFileReader,
        LanceFileSession,
        LanceFileStatistics,
        LanceFileWriter,
        LancePageMetadata,
        ListResult,
        stable_version,
    )
    from lance_spark.dataset.fragments import DatasetFragment, write_fragments
    from lance_spark.dataset.fresh import (
        ExecutionPlan,
        FreshRows,
        LsmPointLookupPlanner,
        LsmScanner,
        LsmVectorSearchPlanner,
        ShardSnapshot,
    )
    from lance_spark.dataset.index_models import IvfModel, PqModel
    from lance_spark.dataset.lance_schema import LanceSchema
    from lance_spark.dataset.mem_wal import evaluate_sharding_spec
    from lance_spark.dataset.merge import MergeInsertBuilder, MergeResult
    from lance_spark.dataset.operations import LanceOperation
    from lance_spark.dataset.optimizer import DatasetOptimizer
    from lance_spark.dataset.refs import Branches, BranchInfo, TagInfo, Tags
    from lance_spark.dataset.scan_keywords import ColumnOrdering, ScanStatistics
    from lance_spark.dataset.scanner import Scanner
    from lance_spark.dataset.session import Session
    from lance_spark.dataset.sql import SqlQuery, SqlQueryBuilder
    from lance_spark.dataset.stats import DatasetStatistics, DataStatistics, FieldStatistics
    from lance_spark.dataset.write import write_dataset
    from lance_spark.mem_wal.cleanup import MemWalCleanup
    from lance_spark.mem_wal.shards import ShardDescription
    from lance_spark.mem_wal.table.details import ShardingField, ShardingSpec
    from lance_spark.mem_wal.writer import ShardWriter
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
    from lance_spark.table.fragments.writer import FragmentWriteProgress
    from lance_spark.table.indexes.sections import Index, IndexFile
    from lance_spark.table.manifest.history import VersionInfo
    from lance_spark.table.open import Reference
    from lance_spark.table.refs.branches import BranchRepair

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
            "IvfModel": "lance_spark.dataset.index_models",
            "PqModel": "lance_spark.dataset.index_models",
            "LanceSchema": "lance_spark.dataset.lance_schema",
            "Blob": "lance_spark.dataset.blobs",
            "BlobType": "lance_spark.dataset.blobs",
            "blob_array": "lance_spark.dataset.blobs",
            "blob_field": "lance_spark.dataset.blobs",
            "LanceBufferDescriptor": "lance_spark.dataset.files",
            "LanceColumnMetadata": "lance_spark.dataset.files",
            "LanceFileMetadata": "lance_spark.dataset.files",
            "LanceFileReader": "lance_spark.dataset.files",
            "LanceFileStatistics": "lance_spark.dataset.files",
            "LancePageMetadata": "lance_spark.dataset.files",
            "stable_version": "lance_spark.dataset.files",
            "LanceFileSession": "lance_spark.dataset.files",
            "ListResult": "lance_spark.dataset.files",
            "LanceFileWriter": "lance_spark.dataset.files",
            "MemWalCleanup": "lance_spark.mem_wal.cleanup",
            "ShardDescription": "lance_spark.mem_wal.shards",
            "ShardWriter": "lance_spark.mem_wal.writer",
            "ShardingField": "lance_spark.mem_wal.table.details",
            "ShardingSpec": "lance_spark.mem_wal.table.details",
            "evaluate_sharding_spec": "lance_spark.dataset.mem_wal",
            "DeletionFile": "lance_spark.table.fragments.files",
            "DataFile": "lance_spark.table.fragments.files",
            "write_fragments": "lance_spark.dataset.fragments",
            "LanceOperation": "lance_spark.dataset.operations",
            "DatasetFragment": "lance_spark.dataset.fragments",
            "ArrowDataset": "lance_spark.dataset.arrow_dataset",
            "ScanStatistics": "lance_spark.dataset.scan_keywords",
            "Scanner": "lance_spark.dataset.scanner",
            "ColumnOrdering": "lance_spark.dataset.scan_keywords",
            "BlobFile": "lance_spark.scan.blob_files",
            "BranchInfo": "lance_spark.dataset.refs",
            "BranchRepair": "lance_spark.table.refs.branches",
            "Branches": "lance_spark.dataset.refs",
            "CleanupStats": "lance_spark.table.cleanup.run",
            "Compaction": "lance_spark.dataset.compaction",
            "CompactionPlan": "lance_spark.dataset.compaction",
            "CompactionTask": "lance_spark.dataset.compaction",
            "RewriteResult": "lance_spark.dataset.compaction",
            "Session": "lance_spark.dataset.session",
            "CompactionMetrics": "lance_spark.mutations.compaction.task",
            "Dataset": "lance_spark.dataset.dataset",
            "ExecutionPlan": "lance_spark.dataset.fresh",
            "DatasetDelta": "lance_spark.dataset.delta",
            "DatasetOptimizer": "lance_spark.dataset.optimizer",
            "DatasetStatistics": "lance_spark.dataset.stats",
            "DataStatistics": "lance_spark.dataset.stats",
            "FieldStatistics": "lance_spark.dataset.stats",
            "MergeInsertBuilder": "lance_spark.dataset.merge",
            "MergeResult": "lance_spark.dataset.merge",
            "Fragment": "lance_spark.table.fragments.fragment",
            "FragmentWriteProgress": "lance_spark.table.fragments.writer",
            "FreshRows": "lance_spark.dataset.fresh",
            "IOStats": "lance_spark.storage.io_counts",
            "Index": "lance_spark.table.indexes.sections",
            "IndexFile": "lance_spark.table.indexes.sections",
            "IndexCheck": "lance_spark.mutations.indexes.check",
            "IndexDescription": "lance_spark.mutations.indexes.existing",
            "IndexSegment": "lance_spark.mutations.indexes.existing",
            "LsmPointLookupPlanner": "lance_spark.dataset.fresh",
            "LsmScanner": "lance_spark.dataset.fresh",
            "LsmVectorSearchPlanner": "lance_spark.dataset.fresh",
            "Reference": "lance_spark.table.open",
            "RemovedFile": "lance_spark.table.cleanup.run",
            "ScanTask": "lance_spark.scan.task",
            "ShardSnapshot": "lance_spark.dataset.fresh",
            "SqlQuery": "lance_spark.dataset.sql",
            "SqlQueryBuilder": "lance_spark.dataset.sql",
            "TagInfo": "lance_spark.dataset.refs",
            "Tags": "lance_spark.dataset.refs",
            "Transaction": "lance_spark.table.commit.transaction",
            "VersionInfo": "lance_spark.table.manifest.history",
            "open_dataset": "lance_spark.dataset.dataset",
            "write_dataset": "lance_spark.dataset.write",
        },
    )
