"""Updates of the configuration, metadata and base paths of a table; restore of older versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lance_spark.errors import InvalidInputError, MissingFileError
from lance_spark.mutations.commits import (
    at_version,
    change_schema,
    check_writable,
    commit_operation,
)
from lance_spark.mutations.constraints import check_config_update
from lance_spark.storage.uri import parse_uri
from lance_spark.subjects import MEM_WAL_SHARDS_CHECK, load
from lance_spark.table.bases import BaseLike, base_path
from lance_spark.table.commit.options import CommitOptions
from lance_spark.table.indexes.sections import has_mem_wal, read_section
from lance_spark.table.open import OpenTable, read_latest
from lance_spark.table.operations.metadata import Restore, UpdateBases, UpdateConfig, map_update
from lance_spark.table.paths import BasePath, TablePaths
from lance_spark.table.refs.branches import missing_files

Values = Mapping[str, str | None]


def update_config(
    table: OpenTable,
    *,
    config: Values | None = None,
    table_metadata: Values | None = None,
    schema_metadata: Values | None = None,
    field_metadata: Mapping[str, Values] | None = None,
    replace: bool = False,
    options: CommitOptions,
) -> OpenTable:
    """Change configuration and metadata in one commit.

    - `config`, `table_metadata`, `schema_metadata`: Values to set; None deletes.
    - `field_metadata` (mapping of str to such a mapping): Values by name of a column, or by path of
      a child with dots.
    - `replace`: Whether keys that are not given are deleted.

    Raises InvalidInputError: a field does not exist, or a value is not a string. Raises
    CommitConflictError: another client changed the same keys, or the metadata of the same field.
    Raises LanceError: errors of `commit`.
    """
    if config is not None and isinstance(config, Mapping):
        existing = table.manifest.message.config
        check_config_update(existing, config, replace, table.store.display)
    maps = {"config": config, "table_metadata": table_metadata, "schema_metadata": schema_metadata}
    updates = {
        name: map_update(values, replace=replace, label=name)
        for name, values in maps.items()
        if values is not None
    }

    def plan(current: OpenTable) -> UpdateConfig:
        fields = {}
        for path, values in (field_metadata or {}).items():
            node = current.schema.path(path)
            update = map_update(values, replace=replace, label=f"metadata of {path}")
            fields[node[-1].id] = update
        return UpdateConfig(
            updates.get("config"),
            updates.get("table_metadata"),
            updates.get("schema_metadata"),
            fields,
        )

    return change_schema(table, plan, options)


def add_bases(table: OpenTable, new_bases: Iterable[BaseLike], options: CommitOptions) -> OpenTable:
    """Add base paths; see `Dataset.add_bases`."""
    bases = tuple(base_path("new_bases", base) for base in new_bases)
    return change_schema(table, lambda _: UpdateBases(bases), options)


def repoint_base(table: OpenTable, base: int | str, path: str, options: CommitOptions) -> OpenTable:
    """Give a base path another path; see `Dataset.repoint_base`."""

    def plan(current: OpenTable) -> UpdateBases:
        name = current.store.display
        bases = current.manifest.base_paths
        old = _base(bases, base, name)
        moved = replace(old, path=parse_uri(path).uri)
        shown = parse_uri(moved.path).display
        if moved == old:
            raise InvalidInputError(f"{name}: base path {base!r} already points to {shown}")
        paths = TablePaths(current.store, {**bases, old.id: moved}, current.store.options)
        needed, missing = missing_files(paths, current.manifest, moved)
        if missing:
            raise MissingFileError(
                f"{name}: {len(missing)} of the {needed} files of base path {base!r} are missing "
                f"below {shown}, or have other sizes there, for example {missing[0]}; copy them "
                "there first"
            )
        return UpdateBases((moved,), replaces=True)

    return change_schema(table, plan, options)


def _base(bases: Mapping[int, BasePath], id_or_name: int | str, table: str) -> BasePath:
    for number, base in bases.items():
        if id_or_name == (number if isinstance(id_or_name, int) else base.name):
            return base
    existing = ", ".join(f"{base.id} ({base.name!r})" for base in bases.values()) or "none"
    raise InvalidInputError(f"{table} has no base path {id_or_name!r}; it has {existing}")


def restore(table: OpenTable, options: CommitOptions) -> OpenTable:
    """Commit a new version with the content of the version that a table is open at.

    Raises VersionNotFoundError: cleanup is removing the version. Raises UnsupportedFeatureError:
    one of the versions has a MemWAL, and the table has shards. Raises LanceError: errors of
    `commit`.
    """
    newest = at_version(table, read_latest(table.store))
    check_writable(newest)
    for manifest in (newest.manifest, table.manifest):
        if has_mem_wal(read_section(manifest)):
            change = f"version {table.version} cannot be restored"
            load(MEM_WAL_SHARDS_CHECK)(table.store, manifest, change)
    operation = Restore(table.version, table.manifest.identity)
    manifest = commit_operation(newest, operation, options)
    return at_version(table, manifest)
