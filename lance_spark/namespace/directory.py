"""The directory namespace: tables below a root folder, on any store.

| object | where |
| --- | --- |
| table `t` in the root namespace | `t.lance/`, and a row of the catalog table |
| table `t` in the namespace `db` | `HASH_db$t/`, and a row of the catalog table; HASH is random |
| namespace `db` | a row of the catalog table `__manifest` (`catalog_table`) |
| table that another client wrote as `t.lance/` | no row: folders of the root are listed, too |
| `t.lance/.lance-deregistered` | the folder is not a table of the namespace any more |
| `t.lance/.lance-reserved` | a client has taken the name, and will write the table |

See docs/src/dir of the specification of namespaces; this is its compatibility mode, the default of
other clients.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    InvalidInputError,
    LanceError,
    NamespaceExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedError,
    UnsupportedFeatureError,
)
from lance_spark.namespace.base import (
    DELIMITER,
    Identifier,
    Namespace,
    TableEntry,
    child_name,
    display,
    text_of,
)
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import check_relative, parse_uri
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES, Backoff, replan_on_conflict
from lance_spark.table.commit.write import (
    CreateTable,
    ReplaceVersion,
    WriteStrategy,
    begin_write,
    commit_or_clean_up,
)
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.refs.branch_store import read_branches
from lance_spark.table.refs.names import branch_store
from lance_spark.table.removal import delete_files

# --------------------------------------------------------------------------------------------------
# The catalog table `__manifest` of a directory namespace: which names exist, and where.
#
# | column | type | content |
# | --- | --- | --- |
# | object_id | string, not null, primary key | names with `$` between: `db$t1` |
# | object_type | string, not null | `namespace` or `table`; others are kept, and not listed |
# | location | string | folder of a table, relative to the root of the namespace |
# | metadata | string | properties as a JSON object, or null |
# | base_objects | list of string | not used |
#
# It is a Lance table. Other clients may have added columns, which are kept. A change writes all
# rows again and commits an overwrite as exactly the next version. If another client commits first,
# the rows are read again, and the change is made again. pylance changes the table in the same way.
#
# The metadata of the table may have feature flags. A client that does not know a flag must not read
# or write the table:
#
# | key in the table metadata | content |
# | --- | --- |
# | lance.namespace.manifest.reader_feature_flags | number, 0 if absent: what readers must know |
# | lance.namespace.manifest.writer_feature_flags | number, 0 if absent: what writers must know |
# | table_version_management | `true`: versions of tables are committed in the catalog table |
#
# See docs/src/dir/catalog-spec.md of the specification of namespaces.

NAME = "__manifest"
_KEY = {"lance-schema:unenforced-primary-key:position": "0"}
SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)
_BATCH_ROWS = 8192
_READER_FLAGS = "lance.namespace.manifest.reader_feature_flags"
_WRITER_FLAGS = "lance.namespace.manifest.writer_feature_flags"
_MANAGED_VERSIONS = "table_version_management"

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The catalog table of a root folder. A table that does not exist yet has no rows.

    - `uri`: URI of the table.
    """

    uri: str
    storage_options: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"CatalogTable({self.uri!r})"

    def rows(self) -> pa.Table:
        """Read all rows.

        Raises StorageError. Raises UnsupportedFeatureError: the table has a feature that this
        release does not know. Raises CorruptTableError: a column is missing or has another type.
        """
        table = self._open()
        return SCHEMA.empty_table() if table is None else self._rows_of(table)

    def change(self, change: Change) -> None:
        """Replace the rows by the rows that `change` returns for them.

        - `change`: Returns the new rows for the present rows, or the present rows to change
          nothing. It is called again with newer rows after another client committed first.

        Raises UnsupportedFeatureError, CorruptTableError, StorageError, UncertainCommitError.
        Raises CommitConflictError: other clients were faster too often.
        """
        backoff = Backoff()

        def again(change: Change, _: CommitConflictError) -> Change:
            backoff.wait()
            return change

        try:
            replan_on_conflict(self._change_once, change, again, DEFAULT_MAX_RETRIES)
        except CommitConflictError as error:
            raise CommitConflictError(
                f"{self.uri}: other clients changed the catalog table "
                f"{DEFAULT_MAX_RETRIES + 1} times at the same time; try again later",
                retryable=True,
            ) from error

    def _change_once(self, change: Change) -> None:
        table = self._open()
        strategy: WriteStrategy = CreateTable()
        rows = SCHEMA.empty_table()
        if table is not None:
            self._check_writable(table)
            strategy, rows = ReplaceVersion(), self._rows_of(table)
        changed = change(rows)
        if changed is rows:
            return
        # Not "create": it would be an error if another client has created the table by now.
        job = begin_write(
            self.uri, changed.schema, mode="overwrite", storage_options=self.storage_options
        ).with_strategy(strategy)
        if job.read_version != (0 if table is None else table.version):
            raise CommitConflictError(
                f"{self.uri}: another client changed the catalog table", retryable=True
            )
        fragments = job.writer().write_all(changed.combine_chunks().to_batches())
        try:
            commit_or_clean_up(job, fragments)
        except TableExistsError as error:
            raise CommitConflictError(str(error), retryable=True) from error

    def _open(self) -> OpenTable | None:
        try:
            table = open_table(self.uri, storage_options=self.storage_options)
        except TableNotFoundError:
            return None
        self._check_flags(table, _READER_FLAGS, "read")
        return table

    def _check_writable(self, table: OpenTable) -> None:
        self._check_flags(table, _WRITER_FLAGS, "write")
        if table.manifest.table_metadata.get(_MANAGED_VERSIONS) == "true":
            raise UnsupportedFeatureError(
                f"{self.uri}: the catalog table manages the versions of its tables "
                f"({_MANAGED_VERSIONS}), which this release does not write; use another client"
            )

    def _check_flags(self, table: OpenTable, key: str, action: str) -> None:
        flags = table.manifest.table_metadata.get(key, "0")
        if flags != "0":
            raise UnsupportedFeatureError(
                f"{self.uri}: the catalog table has feature flags {flags!r} ({key}), which this "
                f"release does not know; {action} it with a newer release"
            )

    def _rows_of(self, table: OpenTable) -> pa.Table:
        schema = table.schema.to_arrow()
        for name in ("object_id", "object_type", "location", "metadata"):
            index = schema.get_field_index(name)
            if index < 0 or schema.field(index).type != pa.string():
                existing = "is missing" if index < 0 else f"has type {schema.field(index).type}"
                raise CorruptTableError(
                    f"{self.uri}: column {name} of the catalog table {existing}; expected string"
                )
        fragments = counted_fragments(table.paths, table.manifest)
        task = ScanTask(
            uri=table.store.uri,
            lance_schema=table.schema,
            slices=tuple(
                FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments
            ),
            batch_size=_BATCH_ROWS,
            base_paths=table.manifest.base_paths,
            storage_options=table.store.options,
        )
        return pa.Table.from_batches(task.batches(prefetch=False), schema)


# --------------------------------------------------------------------------------------------------
# The directory namespace: tables below a root folder, on any store.

_SUFFIX = ".lance"
_DEREGISTERED = ".lance-deregistered"
_NAMESPACE, _TABLE = "namespace", "table"
_LOCATION = "location"
#: What the folder of a table in a namespace has before the name.
_CHOSEN = re.compile("[0-9a-f]{8}")


class DirectoryNamespace(Namespace):
    """Tables below a root folder.

    - `root`: Path or URI of the folder. It may not exist yet.
    - `storage_options`: Settings of the store.

    Examples
    --------
    >>> names = DirectoryNamespace("/data")
    >>> names.create_namespace(("db",))
    >>> entry = names.new_table(("db", "t"))
    >>> lance_spark.write_dataset(table, entry.location)
    >>> names.register_table(("db", "t"), entry)
    """

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(storage_options or {})
        self._store = ObjectStore.from_uri(root, self._options)
        self._catalog = CatalogTable(self._store.below(NAME).uri, self._options)

    def __repr__(self) -> str:
        return f"DirectoryNamespace({self._store.display!r})"

    def list_namespaces(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the namespaces in a parent; see `Namespace`."""
        rows = self._catalog.rows()
        self._check_namespace(rows, parent)
        return _children(rows, _NAMESPACE, parent)

    def describe_namespace(self, identifier: Identifier) -> dict[str, str]:
        """Return the properties of a namespace; see `Namespace`."""
        if not identifier:
            return {}
        row = _row(self._catalog.rows(), text_of(identifier), _NAMESPACE)
        if row is None:
            raise self._no_namespace(identifier)
        return self._properties(row)

    def create_namespace(
        self, identifier: Identifier, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace; see `Namespace`.

        Raises UnsupportedError: the properties have a location: the folders of all tables are
        directly in the root.
        """
        text = text_of(identifier)
        if properties and _LOCATION in properties:
            raise UnsupportedError(
                f"{self._store.display}: namespace {display(identifier)} cannot be at "
                f"{properties[_LOCATION]}, because the tables of all namespaces are in the root; "
                "leave LOCATION out, or use another catalog with that root"
            )

        def change(rows: pa.Table) -> pa.Table:
            self._check_namespace(rows, identifier[:-1])
            if _row(rows, text) is not None:
                raise NamespaceExistsError(
                    f"{self._store.display}: {display(identifier)} exists already; choose another "
                    "name"
                )
            return _with_row(rows, text, _NAMESPACE, None, properties)

        self._catalog.change(change)

    def drop_namespace(self, identifier: Identifier) -> None:
        """Remove an empty namespace; see `Namespace`."""
        text = text_of(identifier)

        def change(rows: pa.Table) -> pa.Table:
            if _row(rows, text, _NAMESPACE) is None:
                raise self._no_namespace(identifier)
            inside = pc.sum(pc.starts_with(rows["object_id"], text + DELIMITER)).as_py()
            if inside:
                raise NamespaceNotEmptyError(
                    f"{self._store.display}: namespace {display(identifier)} has {inside} tables "
                    "and namespaces; drop these first"
                )
            return _without_row(rows, text)

        self._catalog.change(change)

    def list_tables(self, parent: Identifier = ()) -> list[str]:
        """Return the sorted names of the tables in a namespace; see `Namespace`."""
        rows = self._catalog.rows()
        self._check_namespace(rows, parent)
        names = set(_children(rows, _TABLE, parent))
        if parent:
            return sorted(names)
        folders = [
            folder
            for folder in self._store.list_folders("")
            if (name := folder.removesuffix(_SUFFIX)) not in ("", folder) and name not in names
        ]
        are_tables = read_all(self._is_table, folders, local=self._store.is_local)
        found = zip(folders, are_tables, strict=True)
        return sorted(
            names | {folder.removesuffix(_SUFFIX) for folder, is_table in found if is_table}
        )

    def describe_table(self, identifier: Identifier) -> TableEntry:
        """Return the entry of a table; see `Namespace`."""
        entry = self._find(self._catalog.rows(), identifier)
        if entry is None:
            raise self._no_table(identifier)
        return entry

    def new_table(self, identifier: Identifier) -> TableEntry:
        """Return where to write a new table; see `Namespace`."""
        text = text_of(identifier)
        rows = self._catalog.rows()
        if len(identifier) > 1:
            self._check_new(rows, identifier)
            return self._entry(f"{secrets.token_hex(4)}_{text}", text)
        folder = text + _SUFFIX
        self._check_new(rows, identifier, folder)
        if self._has_files(folder):
            if self._is_registered(folder):
                raise self._exists(identifier)
            # Other clients list no table by a name whose folder was deregistered.
            raise TableExistsError(
                f"{self._store.display}: {folder} has the files of a table that was deregistered; "
                "drop the table to delete them, or choose another name"
            )
        return self._entry(folder, text)

    def check_location(self, identifier: Identifier, location: str) -> None:
        """Check that a location is below the root; see `Namespace`."""
        self._relative(location)

    def cancel_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Do nothing: `new_table` leaves nothing behind; see `Namespace`."""

    def register_table(self, identifier: Identifier, entry: TableEntry) -> None:
        """Give an existing table a name; see `Namespace`."""
        text = text_of(identifier)
        location = self._relative(entry.location)

        def change(rows: pa.Table) -> pa.Table:
            self._check_new(rows, identifier, location)
            return _with_row(rows, text, _TABLE, location, entry.properties)

        self._catalog.change(change)

    def deregister_table(self, identifier: Identifier) -> TableEntry:
        """Remove the name of a table, and keep its files; see `Namespace`."""
        entry = self._forget(identifier)
        folder = text_of(identifier) + _SUFFIX
        if len(identifier) == 1 and self._relative(entry.location) == folder:
            # Without it, the folder would be listed as a table.
            self._store.write_bytes(f"{folder}/{_DEREGISTERED}", b"")
        return entry

    def drop_table(self, identifier: Identifier) -> None:
        """Remove the name of a table, and delete its files; see `Namespace`."""
        try:
            location = self._relative(self._forget(identifier, with_files=True).location)
        except TableNotFoundError:
            # Of a table that was deregistered, the files can still be dropped.
            location = text_of(identifier) + _SUFFIX
            if len(identifier) > 1 or not self._has_files(location):
                raise
            self._check_only_name(self._catalog.rows(), identifier, location)
        self._delete(location)

    def rename_table(self, identifier: Identifier, new: Identifier) -> None:
        """Give a table another name; see `Namespace`. Its files stay where they are."""
        text, new_text = text_of(identifier), text_of(new)

        def change(rows: pa.Table) -> pa.Table:
            row = _row(rows, text, _TABLE)
            if row is None:
                if self._find(rows, identifier) is None:
                    raise self._no_table(identifier)
                row = {"location": text + _SUFFIX}
            if row["location"] == text + _SUFFIX:
                raise UnsupportedError(
                    f"{self._store.display}: table {display(identifier)} cannot be renamed: its "
                    f"folder {row['location']} has its name, and other clients list it; create "
                    "the new table by a query, and drop this one"
                )
            self._check_new(rows, new)
            if len(new) == 1 and row["location"] != new_text + _SUFFIX:
                raise UnsupportedError(
                    f"{self._store.display}: table {display(identifier)} cannot get a name in the "
                    f"root: other clients look for such a table in the folder {new_text}{_SUFFIX} "
                    f"only, and its folder is {row['location']}; choose a name in a namespace"
                )
            properties = self._properties(row) or None
            return _with_row(
                _without_row(rows, text), new_text, _TABLE, row["location"], properties
            )

        self._catalog.change(change)

    def _find(self, rows: pa.Table, identifier: Identifier) -> TableEntry | None:
        """Return a table by its row, or by its folder in the root."""
        text = text_of(identifier)
        row = _row(rows, text, _TABLE)
        if row is not None:
            return self._entry(self._location(row), text, self._properties(row))
        folder = text + _SUFFIX
        if len(identifier) == 1 and self._has_files(folder) and self._is_registered(folder):
            return self._entry(folder, text)
        return None

    def _forget(self, identifier: Identifier, *, with_files: bool = False) -> TableEntry:
        """Remove the row of a table, if it has one; return where the table is.

        - `with_files`: Whether its files will be deleted, which must have no other name.
        """
        entries: list[TableEntry] = []

        def change(rows: pa.Table) -> pa.Table:
            entry = self._find(rows, identifier)
            if entry is None:
                raise self._no_table(identifier)
            if with_files:
                self._check_only_name(rows, identifier, self._relative(entry.location))
            entries.append(entry)
            text = text_of(identifier)
            # Another client may have written a table to a folder with the name of a namespace: this
            # table has no row, and the row of the namespace stays.
            return rows if _row(rows, text, _TABLE) is None else _without_row(rows, text)

        self._catalog.change(change)
        return entries[-1]

    def _check_only_name(self, rows: pa.Table, identifier: Identifier, folder: str) -> None:
        """Check that no other name has the files of a table, or of tables in its folder."""
        text = text_of(identifier)
        locations = pc.fill_null(rows["location"], "")
        at_folder = pc.or_(pc.equal(locations, folder), pc.starts_with(locations, f"{folder}/"))
        others = rows.filter(pc.and_(at_folder, pc.not_equal(rows["object_id"], text)))
        names = others["object_id"].to_pylist()
        of_folder = folder.removesuffix(_SUFFIX)
        # No table of the root has a name like that of the folder of a table in a namespace.
        if of_folder not in (folder, text, *names) and {"/", DELIMITER}.isdisjoint(folder):
            names += [of_folder] * self._is_registered(folder)
        if names:
            raise UnsupportedError(
                f"{self._store.display}: table {display(identifier)} cannot be dropped: "
                f"{', '.join(sorted(names))} would lose its files in {folder}; remove the name "
                "only, by deregister_table"
            )

    def _check_new(self, rows: pa.Table, identifier: Identifier, location: str = "") -> None:
        """Check that a name is free, and that its namespace exists."""
        text = text_of(identifier)
        self._check_namespace(rows, identifier[:-1])
        # A table to be registered may have been written to the folder of its name.
        is_own = location == text + _SUFFIX
        if _row(rows, text) is not None or (
            not is_own and self._find(rows, identifier) is not None
        ):
            raise self._exists(identifier)

    def _check_namespace(self, rows: pa.Table, identifier: Identifier) -> None:
        if identifier and _row(rows, text_of(identifier), _NAMESPACE) is None:
            raise self._no_namespace(identifier)

    def _entry(
        self, folder: str, text: str, properties: Mapping[str, str] | None = None
    ) -> TableEntry:
        chosen = folder == text + _SUFFIX or bool(
            _CHOSEN.fullmatch(folder.removesuffix(f"_{text}"))
        )
        uri = self._store.below(folder).uri
        return TableEntry(uri, properties or {}, self._options, chosen=chosen)

    def _location(self, row: Mapping[str, Any]) -> str:
        """Return the folder of a table, which must be below the root."""
        location = row["location"]
        try:
            return check_relative(location or "")
        except InvalidInputError:
            raise CorruptTableError(
                f"{self._catalog.uri}: table {row['object_id']!r} has the location {location!r}, "
                "which is not a folder below the root of the namespace"
            ) from None

    def _relative(self, location: str) -> str:
        """Return the folder of a location, relative to the root."""
        root, place = parse_uri(self._store.uri), parse_uri(location)
        prefix = f"{root.objects.uri}/"
        folder = place.objects.uri.removeprefix(prefix)
        if (
            (place.scheme, place.dynamodb_table) != (root.scheme, root.dynamodb_table)
            or not place.objects.uri.startswith(prefix)
            or folder.partition("/")[0] == NAME
        ):
            raise InvalidInputError(
                f"{location} is not a folder of tables below {self._store.display}; choose one "
                "there"
            )
        return check_relative(folder)

    def _properties(self, row: Mapping[str, Any]) -> dict[str, str]:
        text = row.get("metadata")
        try:
            properties = {} if text is None else json.loads(text)
        except ValueError:
            properties = None
        if not isinstance(properties, dict):
            raise CorruptTableError(
                f"{self._catalog.uri}: the metadata of {row['object_id']!r} is not a JSON object"
            )
        return {name: str(value) for name, value in properties.items()}

    def _has_files(self, folder: str) -> bool:
        """Return whether a folder has files at any depth.

        The folders of a dropped table can stay: on HDFS, and on a local disk if another client was
        changing the table.
        """
        if self._store.list_names(folder):
            return True
        folders = self._store.list_folders(folder)
        if not folders or self._store.has_no_empty_folders:
            return bool(folders)
        return any(self._has_files(f"{folder}/{name}") for name in folders)

    def _is_table(self, folder: str) -> bool:
        """Return whether a folder has a table with the name of the folder."""
        return self._is_registered(folder) and (
            self._store.has_no_empty_folders or self._has_files(folder)
        )

    def _is_registered(self, folder: str) -> bool:
        return not self._store.exists(f"{folder}/{_DEREGISTERED}")

    def _delete(self, folder: str) -> None:
        """Delete a table: its versions first, so that no version lacks files."""
        table = self._store.below(folder)
        roots = [table]
        if table.manifest_store is not None:
            with suppress(LanceError):
                roots += [branch_store(table, name) for name in read_branches(table)]
        paths = [file.path for file in self._store.list_tree(folder)]
        delete_files(self._store, folder, paths, roots, manifests_first=True)

    def _no_namespace(self, identifier: Identifier) -> NamespaceNotFoundError:
        return NamespaceNotFoundError(
            f"{self._store.display}: namespace {display(identifier)} was not found; create it, or "
            "correct the name"
        )

    def _exists(self, identifier: Identifier) -> TableExistsError:
        return TableExistsError(
            f"{self._store.display}: {display(identifier)} exists already; append to it, "
            "overwrite it, or choose another name"
        )

    def _no_table(self, identifier: Identifier) -> TableNotFoundError:
        return TableNotFoundError(
            f"{self._store.display}: table {display(identifier)} was not found; create it, or "
            "correct the name"
        )


def _children(rows: pa.Table, object_type: str, parent: Identifier) -> list[str]:
    texts = rows.filter(pc.equal(rows["object_type"], object_type))["object_id"].to_pylist()
    names = (child_name(text, parent) for text in texts)
    return sorted(name for name in names if name is not None)


def _row(rows: pa.Table, text: str, object_type: str | None = None) -> dict[str, Any] | None:
    """Return the row of an object, if it has this type."""
    matching = rows.filter(pc.equal(rows["object_id"], text)).to_pylist()
    if not matching or (object_type is not None and matching[0]["object_type"] != object_type):
        return None
    row: dict[str, Any] = matching[0]
    return row


def _without_row(rows: pa.Table, text: str) -> pa.Table:
    return rows.filter(pc.not_equal(rows["object_id"], text))


def _with_row(
    rows: pa.Table,
    text: str,
    object_type: str,
    location: str | None,
    properties: Mapping[str, str] | None,
) -> pa.Table:
    metadata = json.dumps(dict(properties), separators=(",", ":")) if properties else None
    row = {
        "object_id": text,
        "object_type": object_type,
        "location": location,
        "metadata": metadata,
    }
    new = pa.Table.from_pylist([row], schema=rows.schema)
    return pa.concat_tables([rows, new])
