"""What this package has for each public name of pylance that is not here under the same name.

A decision of a class, or of a module, holds for all its names that have no decision of their own.
A test reports decisions that are missing, and those that are no longer needed.
"""

from __future__ import annotations

#: The class, or module, of this package whose members are compared with those of pylance's.
COUNTERPARTS = {
    "lance": "lance_spark",
    "lance.query": "lance_spark.query",
    "lance.dataset": "lance_spark.dataset",
    "lance.file": "lance_spark.dataset",
    "lance.file.LanceBufferDescriptor": "lance_spark.dataset.LanceBufferDescriptor",
    "lance.file.LanceColumnMetadata": "lance_spark.dataset.LanceColumnMetadata",
    "lance.file.LanceFileMetadata": "lance_spark.dataset.LanceFileMetadata",
    "lance.file.LanceFileReader": "lance_spark.dataset.LanceFileReader",
    "lance.file.LanceFileStatistics": "lance_spark.dataset.LanceFileStatistics",
    "lance.file.LanceFileWriter": "lance_spark.dataset.LanceFileWriter",
    "lance.file.LancePageMetadata": "lance_spark.dataset.LancePageMetadata",
    "lance.fragment": "lance_spark.dataset",
    "lance.BlobFile": "lance_spark.dataset.BlobFile",
    "lance.CleanupCandidateFile": "lance_spark.dataset.RemovedFile",
    "lance.CleanupStats": "lance_spark.dataset.CleanupStats",
    "lance.DataStatistics": "lance_spark.dataset.DataStatistics",
    "lance.DatasetBasePath": "lance_spark.BasePath",
    "lance.FieldStatistics": "lance_spark.dataset.FieldStatistics",
    "lance.LanceDataset": "lance_spark.Dataset",
    "lance.FragmentMetadata": "lance_spark.dataset.Fragment",
    "lance.LanceFragment": "lance_spark.dataset.DatasetFragment",
    "lance.LanceOperation": "lance_spark.dataset.LanceOperation",
    "lance.ExecutionPlan": "lance_spark.dataset.ExecutionPlan",
    "lance.LsmPointLookupPlanner": "lance_spark.dataset.LsmPointLookupPlanner",
    "lance.LsmScanner": "lance_spark.dataset.LsmScanner",
    "lance.LsmVectorSearchPlanner": "lance_spark.dataset.LsmVectorSearchPlanner",
    "lance.ShardSnapshot": "lance_spark.dataset.ShardSnapshot",
    "lance.Blob": "lance_spark.dataset.Blob",
    "lance.FtsToken": "lance_spark.query.FtsToken",
    "lance.indices.IvfModel": "lance_spark.dataset.IvfModel",
    "lance.indices.PqModel": "lance_spark.dataset.PqModel",
    "lance.lance.LanceSchema": "lance_spark.dataset.LanceSchema",
    "lance.Index": "lance_spark.dataset.Index",
    "lance.IndexFile": "lance_spark.dataset.IndexFile",
    "lance.LanceScanner": "lance_spark.dataset.Scanner",
    "lance.ShardWriter": "lance_spark.dataset.ShardWriter",
    "lance.ShardingField": "lance_spark.dataset.ShardingField",
    "lance.ShardingSpec": "lance_spark.dataset.ShardingSpec",
    "lance.ScanStatistics": "lance_spark.dataset.ScanStatistics",
    "lance.dataset.ColumnOrdering": "lance_spark.dataset.ColumnOrdering",
    "lance.fragment.DataFile": "lance_spark.dataset.DataFile",
    "lance.fragment.DeletionFile": "lance_spark.dataset.DeletionFile",
    "lance.MergeInsertBuilder": "lance_spark.dataset.MergeInsertBuilder",
    "lance.Transaction": "lance_spark.dataset.Transaction",
    "lance.dataset.Branches": "lance_spark.dataset.Branches",
    "lance.dataset.DatasetDelta": "lance_spark.dataset.DatasetDelta",
    "lance.dataset.DatasetOptimizer": "lance_spark.dataset.DatasetOptimizer",
    "lance.dataset.ExecuteResult": "lance_spark.dataset.MergeResult",
    "lance.dataset.LanceStats": "lance_spark.dataset.DatasetStatistics",
    "lance.dataset.SqlQuery": "lance_spark.dataset.SqlQuery",
    "lance.dataset.SqlQueryBuilder": "lance_spark.dataset.SqlQueryBuilder",
    "lance.dataset.Tags": "lance_spark.dataset.Tags",
    "lance.dataset.Version": "lance_spark.dataset.VersionInfo",
    "lance.indices.IndexConfig": "lance_spark.IndexConfig",
    "lance.indices.IndexSegmentDescription": "lance_spark.dataset.IndexSegment",
    "lance.lance.LanceFileSession": "lance_spark.dataset.LanceFileSession",
    "lance.lance.IOStats": "lance_spark.dataset.IOStats",
    "lance.lance.Compaction": "lance_spark.dataset.Compaction",
    "lance.lance.CompactionPlan": "lance_spark.dataset.CompactionPlan",
    "lance.lance.CompactionTask": "lance_spark.dataset.CompactionTask",
    "lance.lance.RewriteResult": "lance_spark.dataset.RewriteResult",
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
    "lance.dataset.DatasetOptimizer.compact_files": "returns the new version and the metrics",
    "lance.file.LanceFileReader": "blobs are returned as descriptors",
    "lance.file.LanceFileWriter": "drops the file if its block raises; refuses blobs",
    "lance.file.LancePageMetadata.encoding": "the bytes of the message; pylance has a text",
    "lance.LanceDataset.session": "one for the process; a variable sets its size",
    "lance.LanceDataset.prewarm_index": "positions are read by each search, and not kept",
    "lance.LanceFragment.open_session": "returns the fragment",
    "lance.LanceOperation.CreateIndex.new_indices": "messages of segments in a transaction",
    "lance.LanceOperation.CreateIndex.removed_indices": "messages of segments in a transaction",
    "lance.LanceOperation.Delete.updated_fragments": "by fragment id",
    "lance.LanceOperation.Update.updated_fragments": "by fragment id",
    "lance.LanceOperation.RewrittenIndex.old_id": "bytes",
    "lance.LanceOperation.RewrittenIndex.new_id": "bytes",
    "lance.lance.Compaction.commit": "returns the new version and the metrics",
    "lance.lance.Compaction.execute": "returns the new version and the metrics",
    "lance.LanceDataset": "made by `open_dataset` and `write_dataset`",
    "lance.LanceScanner": "made by `Dataset.scanner`",
    "lance.write_dataset": "a text in the place of the schema is the mode",
    "lance.LanceDataset.initialize_mem_wal": "sharding columns must be in the primary key",
    "lance.batch_udf": "the checkpoint has a form of its own",
    "lance.LanceDataset.add_columns": "texts are values, not SQL; readers are not taken: `merge`",
    "lance.LanceDataset.delete": "the condition is in Spark's SQL",
    "lance.LanceDataset.update": "new values are values or functions, not texts of SQL",
    "lance.LanceDataset.delta": "refuses tables without stable row ids; pylance returns no rows",
    "lance.LanceDataset.io_stats_incremental": "counts of the table in this process",
    "lance.LanceDataset.io_stats_snapshot": "counts of the table in this process",
    "lance.LanceDataset.join": "as in pyarrow, in memory; pylance refuses it",
    "lance.LanceDataset.join_asof": "as in pyarrow, in memory; pylance ends the process",
    "lance.LanceDataset.sort_by": "as in pyarrow, in memory; pylance ends the process",
    "lance.LanceDataset.merge": "rows to merge may be empty",
    "lance.LanceDataset.get_version": "attributes instead of keys",
    "lance.LanceDataset.sql": "by DuckDB, whose SQL it is: `lance-spark[sql]`",
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
    "lance.lance.LanceFileSession": {"uri_or_path": "base_path"},
    "lance.write_dataset": {"data_obj": "data"},
}

#: Classes of namespaces, and the compiled classes behind them.
_NAMESPACES = (
    "namespace.DirectoryNamespace",
    "namespace.RestNamespace",
    "lance.PyDirectoryNamespace",
    "lance.PyRestNamespace",
)

#: What the page says if the name is here under another name, or not here: the other name or None,
#: and a remark.
DECISIONS: dict[str, tuple[str | None, str]] = {
    # Opening and writing.
    "lance.dataset": (
        "`open_dataset`",
        "`timestamp` for `asof`; `session` has no effect; without the sizes of caches",
    ),
    "lance.LanceDataset.filter": (None, "`to_table(filter=...)`; pylance's own fails"),
    "lance.LanceDataset.partition_expression": (None, "a table has no partitions; pylance refuses"),
    "lance.LanceDataset.replace_schema": (
        None,
        "`replace_schema_metadata`, `replace_field_metadata`; pylance refuses, too",
    ),
    "lance.LanceDataset.storage_options_accessor": (
        "`Dataset.latest_storage_options`",
        "credentials of namespaces are renewed before they expire",
    ),
    "lance.LanceDataset.explain_cleanup_old_versions": (
        "`Dataset.cleanup_old_versions`",
        "with `dry_run=True`",
    ),
    "lance.CleanupExplanation": ("`lance_spark.dataset.CleanupStats`", "of a dry run"),
    "lance.CleanupReferencedBranch": (None, "files that branches need are not in the result"),
    # Indexes.
    "lance.LanceDataset.merge_index_metadata": (
        None,
        "the older way of pylance; `merge_existing_index_segments` merges segments",
    ),
    "lance.LanceDataset.remap_row_addrs": (
        None,
        "use stable row ids for rows that are named across compactions",
    ),
    "lance.IndexProgress": (
        None,
        "a build in one process reports no progress; Spark shows that of `LanceTable.createIndex`",
    ),
    "lance.dataset.IndexInformation": ("`dict`", "`list_indices` returns the same keys"),
    "lance.dataset.VectorIndexReader": (
        None,
        "`index_statistics` has the sizes of partitions, and `get_ivf_model` the centroids; codes of rows are not given out",
    ),
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
        "`Dataset.create_index_uncommitted`",
        "workers build segments; `ivf_centroids` and `pq_codebook` take a trained model, `get_ivf_model` returns one",
    ),
    "lance.util.validate_vector_index": ("`Dataset.index_recall`", ""),
    "lance.util.KMeans": (
        None,
        "`create_index` trains by itself; scikit-learn and FAISS have k-means for other uses",
    ),
    "lance.util.HNSW": (None, "`create_index` with a type of graphs builds them"),
    "lance.util": (None, "helpers of pylance's own builds and tests"),
    "lance.vector": (
        None,
        "training on a GPU with torch; `create_index` trains with numpy, or takes `ivf_centroids` and `pq_codebook` of another trainer",
    ),
    # Rows.
    "lance.dataset.ScannerBuilder": ("`Dataset.scanner`", "by its arguments"),
    "lance.dataset.serialize_row_addrs": (
        None,
        "`scanner` takes no lists of addresses; `take_rows` reads rows by their ids",
    ),
    "lance.dataset.VectorSearchQuery": ("`dict`", "`nearest` takes a mapping"),
    "lance.FFILanceTableProvider": (
        None,
        "an interface of DataFusion in Rust; DuckDB and Polars read a `Dataset` by Arrow",
    ),
    "lance.io": ("`Dataset.io_stats_snapshot`", "counts are kept by table"),
    "lance.bytes_read_counter": ("`Dataset.io_stats_snapshot`", "counts are kept by table"),
    "lance.iops_counter": ("`Dataset.io_stats_snapshot`", "counts are kept by table"),
    # Fragments, transactions.
    "lance.LanceOperation.BaseOperation": ("`lance_spark.table.operations.base.Operation`", ""),
    "lance.FragmentMetadata.data_files": ("`Fragment.files`", ""),
    "lance.FragmentMetadata.row_id_meta": ("`Fragment.to_json`", "the key `row_id_meta`"),
    "lance.FragmentMetadata.created_at_version_meta": (
        "`Fragment.to_json`",
        "the key of that name",
    ),
    "lance.FragmentMetadata.last_updated_at_version_meta": (
        "`Fragment.to_json`",
        "the key of that name",
    ),
    "lance.LanceFragment.partition_expression": (None, "pylance raises NotImplementedError"),
    "lance.LanceFragment.physical_schema": (None, "pylance raises NotImplementedError"),
    "lance.LanceScanner.from_batches": (None, "pylance raises NotImplementedError"),
    "lance.LanceScanner.from_dataset": (None, "pylance raises NotImplementedError"),
    "lance.LanceScanner.from_fragment": (None, "pylance raises NotImplementedError"),
    "lance.LanceScanner.take": (None, "pylance raises NotImplementedError"),
    "lance.ScanStatistics.all_times": ("`ScanStatistics.all_counts`", ""),
    "lance.ScanStatistics.index_cache_hits": (None, "reads of indexes are not counted"),
    "lance.ScanStatistics.index_cache_misses": (None, "reads of indexes are not counted"),
    "lance.ScanStatistics.index_comparisons": (None, "reads of indexes are not counted"),
    "lance.ScanStatistics.indices_loaded": (None, "reads of indexes are not counted"),
    "lance.ScanStatistics.parts_loaded": (None, "reads of indexes are not counted"),
    "lance.fragment.DataFile": ("`lance_spark.dataset.DataFile`", ""),
    "lance.fragment.DataFile.create": (
        "`DatasetFragment.create_from_file`",
        "its `files` have the file",
    ),
    "lance.fragment.DeletionFile": ("`lance_spark.dataset.DeletionFile`", ""),
    "lance.fragment.FragmentSession": (
        "`lance_spark.dataset.DatasetFragment`",
        "`open_session` returns the fragment, whose `take` keeps files open",
    ),
    "lance.fragment.RowDatasetVersionMeta": (
        "`Fragment.to_json`",
        "`created_at_version_meta` and `last_updated_at_version_meta` have the same form",
    ),
    "lance.fragment.RowIdMeta": ("`Fragment.to_json`", "`row_id_meta` has the same form"),
    "lance.fragment.RowIdSequence": (
        None,
        "`scanner(with_row_id=True)` reads row ids; `update` and `merge_insert` keep them",
    ),
    "lance.dataset.BulkCommitResult": ("`dict`", "the same keys"),
    "lance.dataset.UpdateResult": (
        None,
        "`update` returns the new version, without a count: `count_rows` with the condition before it",
    ),
    "lance.dataset.DeleteResult": (
        None,
        "`delete` returns the new version; the difference of `count_rows` is the number",
    ),
    "lance.dataset.AlterColumn": ("`dict`", "`alter_columns` takes the same keys"),
    "lance.dataset.AutoCleanupConfig": ("`Dataset.update_config`", "by its keys"),
    "lance.dataset.Branch": ("`lance_spark.dataset.BranchInfo`", "the same keys"),
    "lance.dataset.Tag": ("`lance_spark.dataset.TagInfo`", "the same keys"),
    "lance.dataset.VersionRef": ("`dict`", "`version_refs` returns the same key"),
    "lance.dataset.DatasetStats": ("`dict`", "`dataset_stats` returns the same keys"),
    "lance.MergeInsertBuilder.execute_batches": ("`execute`", "takes all forms of rows"),
    "lance.MergeInsertBuilder.execute_uncommitted_batches": (
        "`execute_uncommitted`",
        "takes all forms of rows",
    ),
    "lance.MergeInsertBuilder.explain_plan": (
        None,
        "a merge has one plan: it reads keys and columns of conditions, matches them in memory, and writes the rows",
    ),
    "lance.MergeInsertBuilder.analyze_plan": (
        "`execute_uncommitted`",
        "returns the counts of rows; the files that it wrote have to be deleted",
    ),
    "lance.MergeInsertBuilder.analyze_plan_batches": (
        "`execute_uncommitted`",
        "returns the counts of rows",
    ),
    "lance.udf": ("`lance_spark.batch_udf`", "its checkpoint has a form of its own"),
    "lance.LanceOperation.Overwrite.new_schema": (
        "`Overwrite.schema`",
        "messages of fields, as a committed operation has them",
    ),
    "lance.LanceOperation.UpdateConfig.config_updates": ("`UpdateConfig.config`", ""),
    "lance.LanceOperation.UpdateConfig.field_metadata_updates": (
        "`UpdateConfig.field_metadata`",
        "",
    ),
    "lance.LanceOperation.UpdateConfig.schema_metadata_updates": (
        "`UpdateConfig.schema_metadata`",
        "",
    ),
    "lance.LanceOperation.UpdateConfig.table_metadata_updates": (
        "`UpdateConfig.table_metadata`",
        "",
    ),
    "lance.LanceOperation.RewrittenIndex.new_details_type_url": (
        "`RewrittenIndex.details`",
        "the message of the segment has it",
    ),
    "lance.LanceOperation.RewrittenIndex.new_details_value": (
        "`RewrittenIndex.details`",
        "the message of the segment has it",
    ),
    "lance.LanceOperation.RewrittenIndex.new_index_version": (
        "`RewrittenIndex.details`",
        "the message of the segment has it",
    ),
    "lance.lance.StorageOptionsAccessor": (
        "`Dataset.latest_storage_options`",
        "credentials of namespaces are renewed before they expire",
    ),
    "lance.LanceDataset.from_pydantic_model": (
        None,
        "pydantic is not known here: `write_dataset` takes `[row.model_dump() for row in rows]`",
    ),
    "lance.lance.capture_trace_events": (None, "as `lance.tracing`"),
    "lance.lance.trace_to_chrome": (None, "as `lance.tracing`"),
    "lance.lance.shutdown_tracing": (None, "as `lance.tracing`"),
    "lance.lance.TraceEvent": (None, "as `lance.tracing`"),
    "lance.lance.TraceGuard": (None, "as `lance.tracing`"),
    "lance.lance.MetricDescription": (None, "as `lance.otel`"),
    "lance.lance.MetricPoint": (None, "as `lance.otel`"),
    "lance.lance.lance_metrics_catalog": (None, "as `lance.otel`"),
    "lance.lance.register_lance_metrics_recorder": (None, "as `lance.otel`"),
    "lance.lance.snapshot_lance_metrics": (None, "as `lance.otel`"),
    "lance.lance.PyRestAdapter": (
        None,
        "a server for namespaces; `lance_spark.namespace.connect` is a client",
    ),
    "lance.namespace.RestAdapter": (
        None,
        "a server for namespaces; `lance_spark.namespace.connect` is a client",
    ),
    "lance.lance.BitmapIterator": ("`pyroaring.BitMap`", "`iter` of it"),
    "lance.lance.RowIdSequenceIterator": (None, "as `RowIdSequence`"),
    "lance.lance.language_model_home": (
        None,
        "the folder of models for the tokenizers jieba and lindera, which are refused",
    ),
    "lance.lance.datagen": (None, "makes data for benchmarks of the Rust code"),
    "lance.fragment.DataFile.field_ids": ("`DataFile.fields`", ""),
    "lance.vector.vec_to_table": (
        "`pyarrow.FixedSizeListArray.from_arrays`",
        "makes a column of vectors of an array of numpy",
    ),
    "lance.vector.find_duplicate_pairs": (
        "`LanceTable.nearestJoin`",
        "finds near rows by distance; there are no hashes",
    ),
    "lance.vector.find_duplicate_pairs_in_partition": (
        "`LanceTable.nearestJoin`",
        "finds near rows by distance; there are no hashes",
    ),
    "lance.vector.hamming_clustering_for_ivf_partition": (
        "`LanceTable.nearestJoin`",
        "finds near rows by distance; there are no hashes",
    ),
    "lance.vector.hamming_clustering_for_range": (
        "`LanceTable.nearestJoin`",
        "finds near rows by distance; there are no hashes",
    ),
    "lance.vector.hamming_clustering_for_sample": (
        "`LanceTable.nearestJoin`",
        "finds near rows by distance; there are no hashes",
    ),
    "lance.vector.get_ivf_partition_info": (
        "`Dataset.index_statistics`",
        "has the sizes of partitions",
    ),
    "lance.util.sanitize_ts": (None, "`timestamp` of `open_dataset` is a datetime"),
    "lance.util.td_to_micros": (None, "options that are times are timedeltas"),
    "lance.dataset.ScannerBuilder.substrait_aggregate": (
        None,
        "messages of Substrait are not read; DuckDB and Polars aggregate a `Dataset`",
    ),
    "lance.dataset.ScannerBuilder.row_addr_prefilter": (
        None,
        "`scanner` takes no lists of addresses; `take_rows` reads rows by their ids",
    ),
    "lance.dataset.ScannerBuilder.minhash_search": (
        None,
        "indexes of the type MINHASHLSH are not searched",
    ),
    "lance.dataset.ScannerBuilder.full_text_search": (
        "`Dataset.scanner`",
        "by its argument `full_text_query`",
    ),
    "lance.dataset.ScannerBuilder.apply_defaults": (
        "`Dataset.scanner`",
        "a mapping of arguments: `scanner(**defaults)`",
    ),
    "lance.fragment.DeletionFile.asdict": (
        "`Fragment.to_json`",
        "`deletion_file` has the same form; `Fragment.from_json` reads it",
    ),
    "lance.fragment.DeletionFile.json": (
        "`Fragment.to_json`",
        "`deletion_file` has the same form; `Fragment.from_json` reads it",
    ),
    "lance.fragment.DeletionFile.from_json": (
        "`Fragment.to_json`",
        "`deletion_file` has the same form; `Fragment.from_json` reads it",
    ),
    "lance.fragment.DeletionFile.path": (
        "`DatasetFragment.deletion_file`",
        "the path below the root",
    ),
    "lance.torch.bench_utils": (None, "benchmarks of pylance"),
    "lance.torch.distance": (
        None,
        "distances of tensors: `torch.cdist`, `torch.nn.functional.cosine_similarity`",
    ),
    "lance.torch.kmeans": (None, "trains on a GPU; `create_index` trains with numpy"),
    "lance.torch.preferred_device": (None, "chooses a GPU; nothing here runs on one"),
    "lance.torch.dist": ("`lance_spark.loaders`", "loaders find ranks and workers by themselves"),
    "lance.torch.async_dataset": (
        "`lance_spark.loaders`",
        "`torch.utils.data.DataLoader` with workers reads ahead",
    ),
    # Blobs.
    "lance.BlobArray": ("`lance_spark.dataset.blob_array`", "returns an array of `BlobType`"),
    "lance.BlobColumn": (None, "wraps bytes as files: `io.BytesIO(value)`"),
    "lance.BlobDescriptor": (None, "as `DedicatedBlobWriter`"),
    "lance.BlobDescriptorArrayBuilder": (None, "as `DedicatedBlobWriter`"),
    "lance.DedicatedBlobWriter": (
        None,
        "`write_dataset` and `write_fragments` write the files of blobs, as their bytes arrive",
    ),
    "lance.PackedBlobWriter": (None, "as `DedicatedBlobWriter`"),
    "lance.blob_array": ("`lance_spark.dataset.blob_array`", ""),
    "lance.blob_field": ("`lance_spark.dataset.blob_field`", ""),
    "lance.blob.BlobType": ("`lance_spark.dataset.BlobType`", ""),
    "lance.blob": (None, "wraps bytes as files: `io.BytesIO(value)`"),
    # MemWAL.
    "lance.MergeInsertBuilder.mark_sstables_as_compacted": (
        "`Dataset.compact_mem_wal`",
        "reads, merges and marks the SSTables of all shards",
    ),
    "lance.evaluate_sharding_spec": (
        "`lance_spark.dataset.evaluate_sharding_spec`",
        "takes a `Dataset` in place of its schema",
    ),
    "lance.CompactedSsTable": (None, "an argument of `mark_sstables_as_compacted`"),
    "lance.ShardWriter.lsm_scanner": ("`Dataset.lsm_scanner`", "reads the logs of all shards"),
    # Text.
    "lance.tokenize": ("`lance_spark.query.tokenize`", "without the options of `code` analyzers"),
    "lance.query.FullTextQueryType": (None, "a part of pylance's own queries"),
    "lance.query.MinHashQuery": (None, "indexes of the type MINHASHLSH are not searched"),
    "lance.query": (None, "a part of pylance's own queries"),
    # Types.
    "lance.arrow.bfloat16_array": (None, "`pa.array` with the storage type; see [types](types.md)"),
    "lance.arrow": (None, "types of pyarrow are used; see [types](types.md)"),
    "lance.json_to_schema": (None, "a form of pylance's own; `pyarrow.ipc.read_schema`"),
    "lance.schema_to_json": (None, "a form of pylance's own; `schema.serialize()`, or pickle"),
    "lance.pydantic": (None, "pydantic is not known here: give a schema of pyarrow"),
    "lance.bitmap": ("`pyroaring.BitMap`", "operations take sets of the same class, not lists"),
    # Files.
    "lance.lance.LanceFileReader": ("`lance_spark.dataset.LanceFileReader`", ""),
    "lance.lance.LanceFileWriter": ("`lance_spark.dataset.LanceFileWriter`", ""),
    "lance.lance.LanceFileWriteSummary": (
        "`lance_spark.dataset.LanceFileWriter`",
        "`size_bytes`, and the result of `close`",
    ),
    "lance.lance.LanceFileSession.open_packed_blob_writer": (None, "as `PackedBlobWriter`"),
    "lance.lance.LanceFileSession.open_dedicated_blob_writer": (None, "as `DedicatedBlobWriter`"),
    # Errors, logs.
    "lance.commit.CommitConflictError": ("`lance_spark.errors.CommitConflictError`", ""),
    "lance.set_logger": ("`logging`", "the logger is `lance_spark`"),
    "lance.log": ("`logging`", "the logger is `lance_spark`"),
    "lance.tracing": (
        None,
        "traces of the Rust code; Spark shows what its tasks do, and `analyze_plan` what a scan read",
    ),
    "lance.otel": (
        None,
        "counters of the Rust code; `io_stats_snapshot` and `scan_stats_callback` have those of this package",
    ),
    "lance.progress": (
        None,
        "a write in one process reports no progress; Spark shows that of its tasks",
    ),
    "lance.simd_info": (None, "numpy and Arrow choose instructions"),
    "lance.optimize.CompactionOptions.data_storage_version": (
        None,
        "a compaction keeps the file version: write the rows again for another one",
    ),
    "lance.optimize.CompactionOptions": ("`Dataset.compact_files`", "its arguments"),
    "lance.lance.LanceSchema.unenforced_clustering_key": (None, "not used by tables of pylance"),
    "lance.lance.LanceBlobFile": ("`lance_spark.dataset.BlobFile`", ""),
    "lance.lance.LanceBlobFile.set_buffer_size": (
        "`Dataset.take_blobs`",
        "by its argument `buffer_size`",
    ),
    "lance.lance.LanceBlobFile.is_closed": ("`BlobFile.closed`", ""),
    "lance.lance.LanceBlobFile.read_into": ("`BlobFile.readinto`", ""),
    "lance.lance.PyFullTextQuery": ("`lance_spark.query.FullTextQuery`", "and its classes"),
    "lance.lance.PySearchFilter": ("`Dataset.to_table`", "`nearest` and `full_text_query`"),
    "lance.lance.list_transactions": ("`Dataset.get_transactions`", "returns objects, not texts"),
    "lance.lance.format_fragment": ("`lance_spark.inspect`", ""),
    "lance.lance.format_manifest": ("`lance_spark.inspect`", ""),
    "lance.lance.format_schema": ("`lance_spark.inspect`", ""),
    "lance.lance": (None, "a module of the compiled code"),
    # Loaders.
    "lance.hf": ("`lance_spark.loaders`", "[other engines](../howto/other-engines.md)"),
    "lance.sampler.maybe_sample": ("`Dataset.sample`", ""),
    "lance.sampler": (
        "`lance_spark.loaders`",
        "loaders share fragments among ranks and workers, shuffled by seed and epoch",
    ),
    "lance.torch": ("`lance_spark.loaders`", "[other engines](../howto/other-engines.md)"),
    # Namespaces.
    **{
        f"lance.{place}": (
            "`lance_spark.namespace.connect`",
            "lists, creates, renames and drops tables and namespaces; operations on a table are "
            "methods of `Dataset`. As `namespace_client`, objects of the package lance-namespace "
            "are taken, too",
        )
        for place in _NAMESPACES
    },
    **{
        f"lance.{place}.{name}": (None, "only servers of other makers implement it")
        for place in _NAMESPACES
        for name in (
            "alter_table_backfill_columns",
            "alter_transaction",
            "batch_delete_table_versions",
            "create_materialized_view",
            "create_table_version",
            "describe_transaction",
            "refresh_materialized_view",
            "reset_ops_metrics",
            "retrieve_ops_metrics",
        )
    },
    "lance.namespace.DynamicContextProvider": (
        None,
        "headers of requests are the option `headers.NAME` of `lance_spark.namespace.connect`",
    ),
    "lance.namespace": (None, "a part of servers of namespaces, and of pylance's own clients"),
}
