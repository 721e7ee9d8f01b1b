"""What this package has for each public name of pylance that is not here under the same name.

A decision of a class, or of a module, holds for all its names that have no decision of their own.
A test reports decisions that are missing, and those that are no longer needed.
"""

from __future__ import annotations

#: The class, or module, of this package whose members are compared with those of pylance's.
COUNTERPARTS = {
    "lance": "lance_spark",
    "lance.query": "lance_spark.query",
    "lance.BlobFile": "lance_spark.dataset.BlobFile",
    "lance.CleanupCandidateFile": "lance_spark.dataset.RemovedFile",
    "lance.CleanupStats": "lance_spark.dataset.CleanupStats",
    "lance.DataStatistics": "lance_spark.dataset.DataStatistics",
    "lance.DatasetBasePath": "lance_spark.BasePath",
    "lance.FieldStatistics": "lance_spark.dataset.FieldStatistics",
    "lance.LanceDataset": "lance_spark.Dataset",
    "lance.LanceFragment": "lance_spark.dataset.Fragment",
    "lance.MergeInsertBuilder": "lance_spark.dataset.MergeInsertBuilder",
    "lance.Transaction": "lance_spark.dataset.Transaction",
    "lance.dataset.Branches": "lance_spark.dataset.Branches",
    "lance.dataset.DatasetDelta": "lance_spark.dataset.DatasetDelta",
    "lance.dataset.ExecuteResult": "lance_spark.dataset.MergeResult",
    "lance.dataset.LanceStats": "lance_spark.dataset.DatasetStatistics",
    "lance.dataset.Tags": "lance_spark.dataset.Tags",
    "lance.dataset.Version": "lance_spark.dataset.VersionInfo",
    "lance.indices.IndexConfig": "lance_spark.IndexConfig",
    "lance.indices.IndexSegmentDescription": "lance_spark.dataset.IndexSegment",
    "lance.lance.CompactionMetrics": "lance_spark.dataset.CompactionMetrics",
    "lance.query.BooleanQuery": "lance_spark.query.BooleanQuery",
    "lance.query.BoostQuery": "lance_spark.query.BoostQuery",
    "lance.query.CombinedFieldsQuery": "lance_spark.query.CombinedFieldsQuery",
    "lance.query.DocumentGranularity": "lance_spark.query.DocumentGranularity",
    "lance.query.FullTextOperator": "lance_spark.query.FullTextOperator",
    "lance.query.FullTextQuery": "lance_spark.query.FullTextQuery",
    "lance.query.MatchQuery": "lance_spark.query.MatchQuery",
    "lance.query.MultiMatchQuery": "lance_spark.query.MultiMatchQuery",
    "lance.query.Occur": "lance_spark.query.Occur",
    "lance.query.PhraseQuery": "lance_spark.query.PhraseQuery",
}

#: Remarks about names that are the same here.
REMARKS = {
    "lance.LanceDataset.delete": "the condition is in Spark's SQL",
    "lance.LanceDataset.update": "new values are values or functions, not texts of SQL",
    "lance.LanceDataset.delta": "refuses tables without stable row ids; pylance returns no rows",
    "lance.LanceDataset.join": "as in pyarrow, in memory; pylance refuses it",
    "lance.LanceDataset.join_asof": "as in pyarrow, in memory; pylance ends the process",
    "lance.LanceDataset.sort_by": "as in pyarrow, in memory; pylance ends the process",
    "lance.LanceDataset.merge": "rows to merge may be empty",
    "lance.LanceDataset.get_version": "attributes instead of keys",
    "lance.LanceDataset.versions": "attributes instead of keys",
    "lance.LanceDataset.fragment_ids": "a `BitMap` of pyroaring",
    "lance.MergeInsertBuilder.execute": "the result has the new version, too: `dataset`",
    "lance.MergeInsertBuilder.write_mode": "`rewrite_columns` is refused",
    "lance.MergeInsertBuilder.data_storage_version": "only the version of the table",
}

#: Parameters of names that are the same here, if they have other names.
RENAMED = {
    "lance.LanceDataset.add_columns": {"reader_schema": "output_schema"},
    "lance.LanceDataset.delete": {"predicate": "filters"},
    "lance.LanceDataset.index_statistics": {"index_name": "name"},
    "lance.LanceDataset.update": {"where": "filters"},
    "lance.write_dataset": {"data_obj": "data"},
}

#: What the page says if the name is here under another name, or not here: the other name or None,
#: and a remark.
DECISIONS: dict[str, tuple[str | None, str]] = {
    # Opening and writing.
    "lance.dataset": (
        "`open_dataset`",
        "`version` may be a number; tags by `tag`, `asof` by `timestamp`. Tables of a namespace are "
        "opened by the [catalog](../howto/connect.md)",
    ),
    "lance.LanceDataset.filter": (None, "`to_table(filter=...)`; pylance's own fails"),
    "lance.LanceDataset.partition_expression": (None, "a table has no partitions; pylance refuses"),
    "lance.LanceDataset.replace_schema": (
        None,
        "`replace_schema_metadata`, `replace_field_metadata`; pylance refuses, too",
    ),
    "lance.LanceDataset.from_pydantic_model": (None, "write dicts: `write_dataset([...], uri)`"),
    "lance.LanceDataset.lance_schema": (None, "`schema`, with field ids by `lance_spark.inspect`"),
    "lance.LanceDataset.session": (
        None,
        "parts of index files are cached for the process, open files by each `Dataset`",
    ),
    "lance.LanceDataset.storage_options_accessor": (
        None,
        "credentials of namespaces are renewed before they expire",
    ),
    "lance.LanceDataset.new_file_session": (None, "files are opened as tables only"),
    "lance.LanceDataset.optimize": ("`Dataset`", "its methods are methods of `Dataset`"),
    "lance.dataset.DatasetOptimizer": ("`Dataset`", "its methods are methods of `Dataset`"),
    "lance.dataset.DatasetOptimizer.compact_files": (
        "`Dataset.compact_files`",
        "returns the new version and the metrics",
    ),
    "lance.dataset.DatasetOptimizer.optimize_indices": ("`Dataset.optimize_indices`", ""),
    "lance.dataset.DatasetOptimizer.enable_auto_cleanup": (
        "`Dataset.update_config`",
        "keys `lance.auto_cleanup.interval` and `lance.auto_cleanup.older_than`",
    ),
    "lance.dataset.DatasetOptimizer.disable_auto_cleanup": (
        "`Dataset.delete_config_keys`",
        "the same keys",
    ),
    "lance.LanceDataset.explain_cleanup_old_versions": (
        "`Dataset.cleanup_old_versions`",
        "with `dry_run=True`",
    ),
    "lance.CleanupExplanation": ("`lance_spark.dataset.CleanupStats`", "of a dry run"),
    "lance.CleanupReferencedBranch": (None, "files that branches need are not in the result"),
    # Indexes.
    "lance.LanceDataset.create_index_uncommitted": (
        "`create_index`",
        "`num_segments` builds several segments in one commit; `LanceTable.createIndex` builds them "
        "in tasks of Spark",
    ),
    "lance.LanceDataset.commit_existing_index_segments": (
        None,
        "`create_index` with `fragment_ids` commits segments one by one",
    ),
    "lance.LanceDataset.merge_existing_index_segments": (
        "`Dataset.optimize_indices`",
        "merges segments of the table",
    ),
    "lance.LanceDataset.merge_index_metadata": (None, "builds of several tasks need no such step"),
    "lance.LanceDataset.prewarm_index": (
        None,
        "parts of an index are cached by the first searches",
    ),
    "lance.LanceDataset.get_ivf_model": (None, "the model is read by searches and builds alone"),
    "lance.LanceDataset.centroids": (None, "as `get_ivf_model`"),
    "lance.LanceDataset.remap_row_addrs": (
        None,
        "use stable row ids for rows that are named across compactions",
    ),
    "lance.Index": ("`lance_spark.dataset.IndexSegment`", "`describe_indices` returns them"),
    "lance.IndexFile": (None, "`python -m lance_spark inspect` shows the files"),
    "lance.IndexProgress": (None, "`LanceTable.createIndex` shows the progress of Spark's tasks"),
    "lance.dataset.IndexInformation": ("`dict`", "`list_indices` returns the same keys"),
    "lance.dataset.VectorIndexReader": (None, "`index_statistics` has the sizes of partitions"),
    "lance.indices.IndexFileVersion": (None, "indexes are written in the newest form"),
    "lance.indices.IndexSegment": ("`lance_spark.dataset.IndexSegment`", ""),
    "lance.indices.IndexSegmentDescription.covering_fields": (
        None,
        "no index that this release builds has covering fields",
    ),
    "lance.indices.IndexSegmentDescription.dataset_version_at_last_update": (
        "`IndexSegment.dataset_version`",
        "",
    ),
    "lance.indices.IndicesBuilder": (
        "`Dataset.create_index`",
        "`ivf_centroids` and `pq_codebook` take a trained model",
    ),
    "lance.indices.IvfModel": (None, "`create_index(ivf_centroids=...)` takes an array"),
    "lance.indices.PqModel": (None, "`create_index(pq_codebook=...)` takes an array"),
    "lance.util": (None, "helpers of pylance's own builds and tests"),
    "lance.vector": (None, "builds on a GPU; `vec_to_table` is `pa.FixedSizeListArray`"),
    # Rows.
    "lance.LanceDataset.scanner": ("`Dataset.to_batches`", "`plan` splits a scan into tasks"),
    "lance.LanceScanner": ("`Dataset.to_batches`", "`explain` shows the plan"),
    "lance.ScanStatistics": (None, "Spark shows the metrics of scans"),
    "lance.dataset.ScannerBuilder": ("`Dataset.to_batches`", "by its arguments"),
    "lance.dataset.ColumnOrdering": (None, "sort the result, or by Spark"),
    "lance.dataset.serialize_row_addrs": (None, "scans take no lists of addresses"),
    "lance.dataset.VectorSearchQuery": ("`to_table(nearest=...)`", "a mapping"),
    "lance.LanceDataset.sql": ("`spark.sql`", "by the [catalog](../howto/connect.md)"),
    "lance.dataset.SqlQueryBuilder": ("`spark.sql`", ""),
    "lance.dataset.SqlQuery": ("`spark.sql`", ""),
    "lance.FFILanceTableProvider": (None, "an interface of DataFusion in Rust"),
    "lance.LanceDataset.io_stats_snapshot": (None, "Spark shows the metrics of scans"),
    "lance.LanceDataset.io_stats_incremental": (None, "Spark shows the metrics of scans"),
    "lance.lance.IOStats": (None, "Spark shows the metrics of scans"),
    "lance.io": (None, "counters of pylance's own reads"),
    "lance.bytes_read_counter": (None, "counters of pylance's own reads"),
    "lance.iops_counter": (None, "counters of pylance's own reads"),
    # Fragments, transactions.
    "lance.LanceDataset.get_fragments": ("`Dataset.fragments`", ""),
    "lance.LanceDataset.get_fragment": ("`Dataset.fragments`", ""),
    "lance.LanceFragment": ("`lance_spark.dataset.Fragment`", ""),
    "lance.LanceFragment.fragment_id": ("`Fragment.id`", ""),
    "lance.LanceFragment.num_deletions": ("`Fragment.num_deleted_rows`", ""),
    "lance.LanceFragment.data_files": ("`Fragment.files`", ""),
    "lance.LanceFragment.count_rows": ("`Fragment.num_rows`", ""),
    "lance.FragmentMetadata": ("`lance_spark.dataset.Fragment`", ""),
    "lance.LanceOperation": (
        "`lance_spark.table.operations`",
        "`Dataset.commit` takes these operations",
    ),
    "lance.Transaction.transaction_properties": ("`Transaction.properties`", ""),
    "lance.LanceDataset.commit_batch": (None, "commit the transactions one by one"),
    "lance.dataset.BulkCommitResult": (None, "commit the transactions one by one"),
    "lance.fragment": (None, "`Dataset.plan` and Spark read and write fragments"),
    "lance.dataset.UpdateResult": ("`Dataset`", "`update` returns the new version"),
    "lance.dataset.DeleteResult": ("`Dataset`", "`delete` returns the new version"),
    "lance.dataset.AlterColumn": ("`dict`", "`alter_columns` takes the same keys"),
    "lance.dataset.AutoCleanupConfig": ("`Dataset.update_config`", "by its keys"),
    "lance.dataset.Branch": ("`lance_spark.dataset.BranchInfo`", "the same keys"),
    "lance.dataset.Tag": ("`lance_spark.dataset.TagInfo`", "the same keys"),
    "lance.dataset.VersionRef": ("`dict`", "`version_refs` returns the same key"),
    "lance.dataset.DatasetStats": ("`dict`", "`dataset_stats` returns the same keys"),
    "lance.MergeInsertBuilder.execute_uncommitted": (None, "a merge commits"),
    "lance.MergeInsertBuilder.execute_batches": ("`execute`", "takes all forms of rows"),
    "lance.MergeInsertBuilder.execute_uncommitted_batches": (None, "a merge commits"),
    "lance.MergeInsertBuilder.explain_plan": (None, "a merge has one plan"),
    "lance.MergeInsertBuilder.analyze_plan": (None, "a merge has one plan"),
    "lance.MergeInsertBuilder.analyze_plan_batches": (None, "a merge has one plan"),
    "lance.batch_udf": ("`Dataset.add_columns`", "takes functions and `output_schema`"),
    "lance.udf": ("`Dataset.add_columns`", "takes functions and `output_schema`"),
    # Blobs.
    "lance.Blob": (
        None,
        "a blob is bytes, or a struct of `uri` and range; see [blobs](../howto/blobs.md)",
    ),
    "lance.BlobArray": (None, "as `Blob`"),
    "lance.BlobColumn": (None, "`take_blobs` reads one column"),
    "lance.BlobDescriptor": (None, "written by `write_dataset`"),
    "lance.BlobDescriptorArrayBuilder": (None, "written by `write_dataset`"),
    "lance.DedicatedBlobWriter": (None, "written by `write_dataset`"),
    "lance.PackedBlobWriter": (None, "written by `write_dataset`"),
    "lance.blob_array": (None, "pass bytes or structs; see [blobs](../howto/blobs.md)"),
    "lance.blob_field": (
        None,
        "metadata of the field marks a blob; see [blobs](../howto/blobs.md)",
    ),
    "lance.blob": (None, "see [blobs](../howto/blobs.md)"),
    # MemWAL.
    "lance.LanceDataset.initialize_mem_wal": (None, "MemWAL"),
    "lance.LanceDataset.mem_wal_index_details": (None, "MemWAL"),
    "lance.LanceDataset.mem_wal_writer": (None, "MemWAL"),
    "lance.MergeInsertBuilder.mark_sstables_as_compacted": (None, "MemWAL"),
    "lance.CompactedSsTable": (None, "MemWAL"),
    "lance.ExecutionPlan": (None, "MemWAL: plans of its scans"),
    "lance.LsmPointLookupPlanner": (None, "MemWAL"),
    "lance.LsmScanner": (None, "MemWAL"),
    "lance.LsmVectorSearchPlanner": (None, "MemWAL"),
    "lance.ShardSnapshot": (None, "MemWAL"),
    "lance.ShardWriter": (None, "MemWAL"),
    "lance.ShardingField": (None, "MemWAL"),
    "lance.ShardingSpec": (None, "MemWAL"),
    "lance.evaluate_sharding_spec": (None, "MemWAL"),
    # Text.
    "lance.tokenize": (None, "an `INVERTED` index tokenizes; the tokens are not shown"),
    "lance.FtsToken": (None, "as `tokenize`"),
    "lance.query.FullTextQueryType": (None, "a part of pylance's own queries"),
    "lance.query.MinHashQuery": (None, "indexes of the type MINHASHLSH are not searched"),
    "lance.query": (None, "a part of pylance's own queries"),
    # Types.
    "lance.arrow.bfloat16_array": (None, "`pa.array` with the storage type; see [types](types.md)"),
    "lance.arrow": (None, "types of pyarrow are used; see [types](types.md)"),
    "lance.json_to_schema": (None, "a schema of pyarrow can be pickled"),
    "lance.schema_to_json": (None, "a schema of pyarrow can be pickled"),
    "lance.pydantic": (None, "give a schema of pyarrow"),
    "lance.bitmap": ("`pyroaring.BitMap`", ""),
    # Files.
    "lance.file": (None, "`lance_spark.inspect` shows files; they are read as tables"),
    # Errors, logs.
    "lance.commit.CommitConflictError": ("`lance_spark.errors.CommitConflictError`", ""),
    "lance.set_logger": ("`logging`", "the logger is `lance_spark`"),
    "lance.log": ("`logging`", "the logger is `lance_spark`"),
    "lance.tracing": (None, "Spark shows what its tasks do"),
    "lance.otel": (None, "Spark shows what its tasks do"),
    "lance.progress": (None, "Spark shows what its tasks do"),
    "lance.simd_info": (None, "numpy and Arrow choose instructions"),
    "lance.optimize.CompactionOptions": ("`Dataset.compact_files`", "its arguments"),
    "lance.lance.Compaction": ("`LanceTable.optimize`", "compacts in tasks of Spark"),
    "lance.lance.CompactionPlan": ("`LanceTable.optimize`", "compacts in tasks of Spark"),
    "lance.lance.CompactionTask": ("`LanceTable.optimize`", "compacts in tasks of Spark"),
    "lance.lance.RewriteResult": ("`LanceTable.optimize`", "compacts in tasks of Spark"),
    "lance.lance.LanceSchema": (None, "`schema`, with field ids by `lance_spark.inspect`"),
    "lance.lance": (None, "compiled code behind the other names"),
    # Loaders.
    "lance.hf": (None, "not yet"),
    "lance.sampler": (None, "`Dataset.plan` splits a table into tasks"),
    "lance.torch": (None, "not yet"),
    # Namespaces.
    "lance.namespace": (
        None,
        "the [catalog](../howto/connect.md) of Spark knows directories, REST servers and the "
        "package lance-namespace",
    ),
}
