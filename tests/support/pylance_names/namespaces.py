"""What this package has for the methods of pylance's clients of namespaces."""

from __future__ import annotations

_NAMESPACE = "`lance_spark.namespace.Namespace.{}`"
_CONNECT = "`lance_spark.namespace.connect`"
#: Operations on names.
_OF_NAMES = {
    "create_namespace": ("create_namespace", ""),
    "declare_table": ("new_table", "`list_tables` has it after `register_table`"),
    "deregister_table": ("deregister_table", ""),
    "describe_namespace": ("describe_namespace", ""),
    "describe_table": ("describe_table", "where it is; `open_dataset` reads versions and schemas"),
    "drop_namespace": ("drop_namespace", ""),
    "drop_table": ("drop_table", ""),
    "list_all_tables": ("list_tables", "of each namespace"),
    "list_namespaces": ("list_namespaces", ""),
    "list_tables": ("list_tables", ""),
    "namespace_exists": ("describe_namespace", "an error if it does not exist"),
    "register_table": ("register_table", ""),
    "rename_table": ("rename_table", "pylance refuses it for folders"),
    "table_exists": ("describe_table", "an error if it does not exist"),
}
#: Operations on a table, which `open_dataset(namespace_client=, table_id=)` opens.
_OF_TABLES = {
    "alter_table_add_columns": "add_columns",
    "alter_table_alter_columns": "alter_columns",
    "alter_table_drop_columns": "drop_columns",
    "count_table_rows": "count_rows",
    "create_table_branch": "create_branch",
    "create_table_index": "create_index",
    "create_table_scalar_index": "create_scalar_index",
    "create_table_tag": "tags",
    "delete_from_table": "delete",
    "delete_table_branch": "branches",
    "delete_table_tag": "tags",
    "describe_table_index_stats": "index_statistics",
    "describe_table_version": "get_version",
    "drop_table_index": "drop_index",
    "get_table_stats": "stats",
    "get_table_tag_version": "tags",
    "insert_into_table": "insert",
    "list_table_branches": "branches",
    "list_table_indices": "list_indices",
    "list_table_tags": "tags",
    "list_table_versions": "versions",
    "merge_insert_into_table": "merge_insert",
    "query_table": "to_table",
    "restore_table": "restore",
    "update_table": "update",
    "update_table_schema_metadata": "update_schema_metadata",
    "update_table_tag": "tags",
}
_OTHERS: dict[str, tuple[str | None, str]] = {
    "analyze_table_query_plan": ("`lance_spark.dataset.Scanner.analyze_plan`", ""),
    "create_table": ("`lance_spark.write_dataset`", "by `namespace_client` and `table_id`"),
    "explain_table_query_plan": ("`lance_spark.dataset.Scanner.explain_plan`", ""),
    "namespace_id": ("`repr`", "names the root or the server"),
    "alter_table_backfill_columns": (None, "only servers of other makers implement it"),
    "alter_transaction": (None, "transactions do not change after their commit"),
    "create_materialized_view": (None, "only servers of other makers implement it"),
    "create_table_version": (None, "a step of commits, which `Dataset.commit` makes as a whole"),
    "refresh_materialized_view": (None, "only servers of other makers implement it"),
    "reset_ops_metrics": (None, "calls of a namespace are not counted"),
    "retrieve_ops_metrics": (None, "calls of a namespace are not counted"),
}
_METHODS: dict[str, tuple[str | None, str]] = {
    **{name: (_NAMESPACE.format(own), remark) for name, (own, remark) in _OF_NAMES.items()},
    **{name: (f"`lance_spark.Dataset.{own}`", "") for name, own in _OF_TABLES.items()},
    **_OTHERS,
    "batch_delete_table_versions": (
        "`lance_spark.Dataset.cleanup_old_versions`",
        "by its argument `versions`",
    ),
    "describe_transaction": ("`lance_spark.Dataset.read_transaction`", "by its version"),
    "restore_table": ("`lance_spark.Dataset.restore`", "after `checkout_version`"),
    "update_table": ("`lance_spark.Dataset.update`", "new values are values, not texts of SQL"),
}
#: The class whose methods have rows of their own, and the other ones with the same methods.
_FIRST = "lance.namespace.DirectoryNamespace"
_SAME = ("lance.namespace.RestNamespace", "lance.lance.PyDirectoryNamespace")
DECISIONS: dict[str, tuple[str | None, str]] = {
    _FIRST: (
        _CONNECT,
        "methods have arguments, not requests; ids are tuples of names. As `namespace_client`, "
        "objects of the package lance-namespace are taken, too",
    ),
    **{f"{_FIRST}.{name}": decision for name, decision in _METHODS.items()},
    **dict.fromkeys(
        (*_SAME, "lance.lance.PyRestNamespace"), (_CONNECT, f"its methods as those of `{_FIRST}`")
    ),
    "lance.namespace.DynamicContextProvider": (
        None,
        "headers of requests are the option `headers.NAME` of `lance_spark.namespace.connect`",
    ),
    "lance.namespace.RestAdapter": (
        None,
        "a server for namespaces; `lance_spark.namespace.connect` is a client",
    ),
    "lance.lance.PyRestAdapter": (
        None,
        "a server for namespaces; `lance_spark.namespace.connect` is a client",
    ),
    "lance.namespace": (None, "a part of servers of namespaces, and of pylance's own clients"),
}
