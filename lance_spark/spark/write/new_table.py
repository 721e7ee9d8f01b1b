"""Writes that create or replace a table with given properties; the arguments of all writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_spark.spark.options.write import WriteOptions

if TYPE_CHECKING:
    from lance_spark.table.commit.write import Mode, TableSettings, WriteJob
    from lance_spark.table.constraints import Constraint

#: The option by which a statement of the catalog gives the properties of the table that it creates.
OPTION = "new_table"
#: The key under which the metadata of a table has the collation of strings of new columns.
COLLATION = "spark.sql.collation"


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that a write creates or replaces.

    - `must_create`: Whether the write fails if the table exists at the time of the commit.
    - `properties`: Those that start with ``lance.`` become the configuration of the table, all
      others its metadata.
    - `replaces`: Whether the statement may replace a table: then it conflicts with another client
      that creates the table meanwhile, and succeeds if it is repeated. The table then loses the
      constraints that it has.
    - `constraints`: Constraints of the new table.
    """

    must_create: bool
    properties: Mapping[str, str] = field(default_factory=dict)
    replaces: bool = False
    constraints: Sequence[Constraint] = ()

    def options(self) -> dict[str, str]:
        """Return the options of a write that `parse` reads."""
        return {
            OPTION: json.dumps({"properties": dict(self.properties), "replaces": self.replaces}),
            "must_create": str(self.must_create).lower(),
        }

    @classmethod
    def parse(cls, text: str, must_create: bool) -> NewTable:
        """Parse the options."""
        return cls(must_create, **json.loads(text))

    def settings(self, options: WriteOptions) -> TableSettings:
        """Return the settings of the table."""
        from lance_spark.table.commit.write import TableSettings

        values = self.properties
        metadata: dict[str, str | None] = {
            key: value for key, value in values.items() if not key.startswith("lance.")
        }
        # The metadata of a replaced table stays otherwise.
        metadata.setdefault(COLLATION, None)
        config = {key: value for key, value in values.items() if key.startswith("lance.")}
        return TableSettings(
            bool(options.enable_stable_row_ids),
            config=config | {known.key: known.value() for known in self.constraints},
            table_metadata=metadata,
            drops_constraints=self.replaces,
        )


def begin_new_table(options: WriteOptions, schema: pa.Schema, new_table: NewTable) -> WriteJob:
    """Plan the write of a table.

    Raises InvalidOptionError, SchemaMismatchError, StorageError. Raises TableExistsError: the table
    exists, and must be created.
    """
    from lance_spark.table.commit.write import begin_write

    arguments = {**write_arguments(options), "settings": new_table.settings(options)}
    is_new = new_table.must_create and not new_table.replaces
    mode: Mode = "create" if is_new else "overwrite"
    return begin_write(options.path, schema, mode=mode, **arguments)


def write_arguments(options: WriteOptions) -> dict[str, Any]:
    """Return the arguments of `begin_write` that options set."""
    from lance_spark.file.blobs.writer import blob_options
    from lance_spark.table.commit.write import BaseTargets, TableSettings
    from lance_spark.table.fragments.limits import WriteLimits

    bases = options.target_bases
    return {
        "branch": options.branch,
        "data_storage_version": options.data_storage_version,
        "limits": WriteLimits.of(options.max_rows_per_file, options.max_bytes_per_file),
        "settings": TableSettings(bool(options.enable_stable_row_ids)),
        "commit_retries": options.commit_retries,
        "checked_constraints": options.checked_constraints,
        "bases": BaseTargets(options.initial_bases or (), bases.names, bases.all_bases),
        "storage_options": options.storage_options or None,
        "blobs": blob_options(
            options.external_blob_mode,
            options.allow_external_blob_outside_bases,
            options.blob_pack_file_size_threshold,
        ),
    }
