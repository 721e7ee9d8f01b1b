"""ALTER TABLE and COMMENT ON TABLE: changes of properties and columns.

Most statements make one version. Two kinds of changes in one statement make a version each, in this
order:

| changes | how |
| --- | --- |
| types, names and nullability of columns | one `alter_columns`; values are cast to a new type |
| columns that are dropped | one `drop_columns` |
| new columns | one `add_columns`; two for fields of structs together with columns with values |
| comments and defaults of columns, table properties | one `update_config` |
| positions | one `reorder_columns` |

Everything that can be refused by names and types alone is refused before the first version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_spark.dataset.dataset import Dataset, open_dataset
from lance_spark.errors import InvalidInputError, InvalidOptionError, UnsupportedError
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.file.schema.types import SPARK_TYPE
from lance_spark.mutations.columns.add import add_columns
from lance_spark.mutations.columns.alter import alter_columns, drop_columns, reorder_columns
from lance_spark.mutations.metadata_updates import update_config
from lance_spark.spark.catalog import constraints, properties
from lance_spark.spark.catalog.names import Catalog
from lance_spark.spark.catalog.tables import loaded
from lance_spark.spark.options.declared import COLUMN_KEYS
from lance_spark.spark.options.write import WriteOptions
from lance_spark.spark.pushdown.filter_trees import literal
from lance_spark.spark.read.projection import find
from lance_spark.spark.types.field_metadata import COMMENT, DEFAULT
from lance_spark.spark.types.mapping import (
    table_schema,
    to_arrow_schema,
    to_spark_schema,
    with_default,
)
from lance_spark.spark.types.recorded import CHAR_VARCHAR, with_char_varchar
from lance_spark.table.commit.options import CommitOptions

if TYPE_CHECKING:
    from lance_spark.table.open import OpenTable


# --------------------------------------------------------------------------------------------------
# Types of columns that ALTER TABLE changes, and the paths by which Spark names columns.

#: Column options whose change gives the column another type.
_TYPE_OPTION = "arrow."


def vector_type(schema: Schema, names: Sequence[str], text: str, table: str) -> pa.DataType | None:
    """Return the new type of a column of vectors whose elements get another type.

    None if the names are not the path of the elements of such a column. Raises UnsupportedError:
    the new type holds fewer values.
    """
    if names[-1] != "element":
        return None
    old = schema.field(path_of(schema, names[:-1])).to_arrow().type
    if not pa.types.is_fixed_size_list(old):
        return None
    element = StructField("item", spark_type(text))
    item = to_arrow_schema(StructType([element])).field(0).type
    _check_wider(table, ".".join(names), old.value_type, item)
    return pa.list_(old.value_field.with_type(item), old.list_size)


def changed_field(schema: Schema, path: str, text: str, table: str) -> pa.Field:
    """Return a column or field with another type.

    Raises UnsupportedError: the field is inside a map, or its values cannot be cast without a loss.
    """
    nodes = schema.path(path)
    if any(node.logical_type == "map" for node in nodes[:-1]):
        raise UnsupportedError(
            f"table {table}: the type of {path} cannot be changed, because it is inside a map"
        )
    old = nodes[-1].to_arrow()
    (known,) = to_spark_schema(pa.schema([old]))
    # The metadata has char(n) and varchar(n) of the old type.
    metadata = {key: value for key, value in known.metadata.items() if key != CHAR_VARCHAR}
    field = StructField(old.name, spark_type(text), old.nullable, metadata)
    new: pa.Field = to_arrow_schema(StructType([field])).field(0)
    if _depends_on_zone(old.type) != _depends_on_zone(new.type):
        raise UnsupportedError(
            f"table {table}: {path} cannot be changed from {known.dataType.simpleString()}"
            f" to {field.dataType.simpleString()}, because the new values depend on a time "
            "zone; add a column, and set its values by UPDATE"
        )
    _check_wider(table, path, old.type, new.type)
    return new


def _check_wider(table: str, path: str, old: pa.DataType, new: pa.DataType) -> None:
    """Refuse a type that holds fewer values: Spark 4.1 asks for it if a MERGE has such values."""
    if 0 < _digits(new) < _digits(old):
        raise UnsupportedError(
            f"table {table}: {path} cannot be changed from {old} to {new}, which holds "
            f"fewer values; cast the values of the statement to {old}"
        )


def type_with(schema: Schema, column: str, options: Mapping[str, str]) -> pa.DataType | None:
    """Return the type of a column with other options; None if its type stays.

    Raises InvalidOptionError: the options change more than the type in Arrow.
    """
    field = schema.field(column)
    if any(node.is_blob for node in field.walk()):
        if options == {COLUMN_KEYS["lance.encoding"]: "true"}:
            return None
        raise InvalidOptionError(
            f"options of the column {column} cannot be changed: it holds blobs; set them when the "
            "table is created"
        )
    old = field.to_arrow()
    read = to_spark_schema(pa.schema([old]))
    (same,) = to_arrow_schema(read)
    (new,) = to_arrow_schema(read, {old.name.lower(): options})
    if (new.metadata or {}).keys() != (same.metadata or {}).keys():
        # Other options make a blob or a JSON column, or set hints of encodings for new files.
        raise InvalidOptionError(
            f"options of the column {column} cannot be changed, except "
            f"those that start with {_TYPE_OPTION}; set them when the table is created, or by "
            "LanceTable.add_columns"
        )
    return None if new.type == old.type else new.type


def path_of(schema: Schema, names: Sequence[str]) -> str:
    """Return the path of a column or of a field inside it.

    - `names`: Names from the column down. Spark names the items of arrays ``element``, and the
      entries of maps ``key`` and ``value``.

    Raises InvalidInputError: the column is not found.
    """
    nodes: Sequence[Field] = schema.fields
    parts: list[str] = []
    parent = ""
    for name in names:
        if parent == "map":
            parts.append(nodes[0].name)
            nodes = nodes[0].children
        if "list" in parent and len(nodes) == 1:
            index = 0
        else:
            index = find([node.name for node in nodes], name)
        if index < 0:
            raise InvalidInputError(
                f"column {'.'.join(names)} was not found; the table has "
                f"{', '.join(schema.names[:50])}"
            )
        parts.append(nodes[index].name)
        nodes, parent = nodes[index].children, nodes[index].logical_type
    return ".".join(parts)


def spark_type(text: str) -> Any:
    """Return the type of Spark of the only column that a JSON text describes."""
    return with_char_varchar(StructType.fromJson(json.loads(text))[0])


def _depends_on_zone(dtype: pa.DataType) -> bool:
    """Return whether values are points in time, which are local times only in a time zone."""
    return bool(pa.types.is_timestamp(dtype) and dtype.tz is not None)


def _digits(dtype: pa.DataType) -> int:
    """Return a measure of the values that a number type holds; 0 for other types.

    Among decimals, and among the other numbers, a type with a lower measure holds fewer values.
    """
    if pa.types.is_decimal(dtype):
        return int(dtype.precision)
    if pa.types.is_integer(dtype) or pa.types.is_floating(dtype):
        return int(dtype.bit_width)
    return 0


# --------------------------------------------------------------------------------------------------
# ALTER TABLE and COMMENT ON TABLE: changes of properties and columns.

_ADD, _DELETE, _RENAME = "AddColumn", "DeleteColumn", "RenameColumn"
_TYPE, _NULLABILITY = "UpdateColumnType", "UpdateColumnNullability"
_COMMENT, _DEFAULT, _POSITION = (
    "UpdateColumnComment",
    "UpdateColumnDefaultValue",
    "UpdateColumnPosition",
)
_SET, _UNSET = "SetProperty", "RemoveProperty"
_CONSTRAINTS = frozenset({"AddConstraint", "DropConstraint"})
_KNOWN = {
    *(_ADD, _DELETE, _RENAME, _TYPE, _NULLABILITY, _COMMENT, _DEFAULT, _POSITION, _SET, _UNSET)
}

Change = Mapping[str, Any]


def alter_table(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Change a table, and return it as `load_table` does.

    - `arguments`: The name, and ``changes``: a list of the changes of the statement; see
      `TableChanges.java`.

    Raises TableNotFoundError, InvalidInputError, InvalidOptionError, UnsupportedError,,
    CommitConflictError.
    """
    entry = Catalog.of(arguments).describe(arguments)
    storage = dict(entry.storage_options) or None
    name = ".".join((*arguments["namespace"], arguments["name"]))
    for change in arguments["changes"]:
        if change["op"] in _CONSTRAINTS:
            # Such a statement has one change.
            constraints.change(entry, change, name)
            return loaded(entry)
    table = open_dataset(entry.location, storage_options=storage)._table
    _Statement(table, arguments["changes"], name).run()
    return loaded(entry)


def _is_set_again(table: OpenTable, change: Change) -> bool:
    """Return whether a change sets a property of the table's creation to the value that it has.

    Pipelines of Spark before 4.3 set `provider` in each run.
    """
    if change["op"] != _SET or not properties.is_of_creation(change["property"]):
        return False
    value: str = change["value"]
    return properties.of_table(Dataset(table)).get(change["property"]) == value


class _Statement:
    """The changes of one statement."""

    def __init__(self, table: OpenTable, changes: Sequence[Change], name: str) -> None:
        self._table = table
        self._changes = [change for change in changes if not _is_set_again(table, change)]
        self._name = name
        self._options = CommitOptions()

    def run(self) -> None:
        """Make the changes."""
        self._check_all()
        steps = [
            self._alterations(),
            self._drops(),
            *self._additions(),
            self._metadata(),
            self._order(),
        ]
        for step in filter(None, steps):
            self._table = step()

    def _of(self, *ops: str) -> list[Change]:
        return [change for change in self._changes if change["op"] in ops]

    def _check_all(self) -> None:
        for change in self._changes:
            if change["op"] not in _KNOWN:
                raise UnsupportedError(
                    f"table {self._name}: a Lance table does not store the change "
                    f"{change['op']} of the statement"
                )
            if change.get("position") is not None and len(change["column"]) > 1:
                raise UnsupportedError(
                    f"table {self._name}: FIRST and AFTER apply to columns, not to "
                    f"{'.'.join(change['column'])}, a field of a struct; leave them out"
                )
        dropped = {tuple(change["column"]) for change in self._of(_DELETE)}
        if dropped >= {(field.name,) for field in self._table.schema.fields} and self._of(_ADD):
            raise UnsupportedError(
                f"table {self._name}: values of all columns would be lost by REPLACE COLUMNS; use "
                "ADD COLUMNS and DROP COLUMNS, or CREATE OR REPLACE TABLE"
            )

    # Types, names and nullability

    def _alterations(self) -> Callable[[], OpenTable] | None:
        by_path: dict[str, dict[str, Any]] = {}
        for change in self._of(_RENAME, _TYPE, _NULLABILITY):
            names = change["column"]
            vector = self._vector_type(change)
            path = path_of(self._table.schema, names[:-1] if vector is not None else names)
            alteration = by_path.setdefault(path, {"path": path})
            if change["op"] == _RENAME:
                alteration["name"] = change["name"]
            elif change["op"] == _NULLABILITY:
                alteration["nullable"] = change["nullable"]
            else:
                dtype = (
                    vector
                    or changed_field(self._table.schema, path, change["type"], self._name).type
                )
                if dtype != self._table.schema.field(path).to_arrow().type:
                    alteration["data_type"] = dtype
        for column, options in self._column_options().items():
            dtype = type_with(self._table.schema, column, options)
            if dtype is not None:
                by_path[column] = {"path": column, "data_type": dtype}
        alterations = [alteration for alteration in by_path.values() if len(alteration) > 1]
        if not alterations:
            return None
        return lambda: alter_columns(self._table, alterations, self._options)

    def _vector_type(self, change: Change) -> pa.DataType | None:
        if change["op"] != _TYPE:
            return None
        return vector_type(self._table.schema, change["column"], change["type"], self._name)

    # Properties

    def _column_options(self) -> dict[str, dict[str, str]]:
        """Return the options of columns that the statement sets, by name of the column."""
        options_by_column: dict[str, dict[str, str]] = {}
        for change in self._of(_SET):
            name = change["property"]
            if properties.is_column_option(name) and not self._is_of_new_column(name):
                parsed = WriteOptions.parse({"path": self._name, name: change["value"]})
                for column, options in parsed.column_metadata.items():
                    path = path_of(self._table.schema, column.split("."))
                    options_by_column.setdefault(path, {}).update(options)
        return options_by_column

    def _is_of_new_column(self, name: str) -> bool:
        """Return whether a property is an option of a column that the table does not have yet."""
        column = name.partition(".")[0]
        return properties.is_column_option(name) and find(self._table.schema.names, column) < 0

    def _metadata(self) -> Callable[[], OpenTable] | None:
        config: dict[str, str | None] = {}
        metadata: dict[str, str | None] = {}
        for change in self._of(_SET, _UNSET):
            name = change["property"]
            if self._is_of_new_column(name):
                if change["op"] == _SET:
                    # Refuses a wrong value.
                    WriteOptions.parse({"path": self._name, name: change["value"]})
            elif change["op"] == _SET and properties.is_column_option(name):
                continue
            else:
                properties.check_changeable(name)
            target = config if properties.is_config(name) else metadata
            target[properties.stored_name(name)] = change.get("value")
            if change["op"] == _SET:
                schema = self._table.schema.to_arrow()
                properties.check_partition_columns({name: change["value"]}, schema, self._name)
        fields: dict[str, dict[str, str | None]] = {}
        for change in self._of(_COMMENT, _DEFAULT):
            path = path_of(self._table.schema, change["column"])
            if change["op"] == _COMMENT:
                key, value = COMMENT, change["comment"]
            else:
                key, value = DEFAULT, change["default"] or None
            fields.setdefault(path, {})[key] = value
        for change in self._of(_TYPE):
            if self._vector_type(change) is None:
                path = path_of(self._table.schema, change["column"])
                new = (
                    changed_field(self._table.schema, path, change["type"], self._name).metadata
                    or {}
                )
                record = new.get(SPARK_TYPE.encode())
                if record != self._table.schema.field(path).metadata.get(SPARK_TYPE):
                    text = None if record is None else record.decode()
                    fields.setdefault(path, {})[SPARK_TYPE] = text
        if not (config or metadata or fields):
            return None
        return lambda: update_config(
            self._table,
            config=config or None,
            table_metadata=metadata or None,
            field_metadata=fields,
            options=self._options,
        )

    # New columns, dropped columns, positions

    def _drops(self) -> Callable[[], OpenTable] | None:
        paths = [path_of(self._table.schema, change["column"]) for change in self._of(_DELETE)]
        if not paths:
            return None
        return lambda: drop_columns(self._table, paths, self._options)

    def _additions(self) -> list[Callable[[], OpenTable]]:
        columns: dict[str, pa.Field] = {}
        values: dict[str, pa.Scalar] = {}
        children = []
        for change in self._of(_ADD):
            field = self._new_field(change)
            value = self._value(change, field)
            if len(change["column"]) == 1:
                columns[field.name], values[field.name] = field, value
            else:
                self._check_parent(change["column"])
                children.append((tuple(change["column"]), field))
        top = [((name,), field) for name, field in columns.items()]
        if all(not value.is_valid for value in values.values()):
            fields = _nested([*top, *children])
            return [lambda: add_columns(self._table, fields, options=self._options)] * bool(fields)
        schema, nested = pa.schema(columns.values()), _nested(children)
        return [
            lambda: add_columns(self._table, values, output_schema=schema, options=self._options),
            *[lambda: add_columns(self._table, nested, options=self._options)] * bool(nested),
        ]

    def _new_field(self, change: Change) -> pa.Field:
        column = StructField(change["column"][-1], spark_type(change["type"]), change["nullable"])
        if change["comment"] is not None:
            column.metadata[COMMENT] = change["comment"]
        if change.get("default") is not None:
            column = with_default(column, change["default"])
        known = properties.of_new_columns(self._table.manifest.table_metadata, [column.name])
        options = known if len(change["column"]) == 1 else {}
        return table_schema(StructType([column]), options).field(0)

    def _value(self, change: Change, field: pa.Field) -> pa.Scalar:
        """Return the value of a new column in the existing rows."""
        value = change.get("value")
        if change.get("default") is None or (value is not None and value["lit"] is None):
            return pa.scalar(None, field.type)
        name = ".".join(change["column"])
        if value is None or len(change["column"]) > 1:
            raise UnsupportedError(
                f"table {self._name}: the new column {name} cannot have a default of type "
                f"{spark_type(change['type']).simpleString()}: existing rows would need its "
                "value; add the column without DEFAULT, and then set the default by ALTER COLUMN"
            )
        typed = literal(value)
        return pa.array([typed.value], typed.dtype).cast(field.type)[0]

    def _check_parent(self, names: Sequence[str]) -> None:
        above = self._table.schema.path(path_of(self._table.schema, names[:-1]))
        if any(field.logical_type != "struct" for field in above):
            raise UnsupportedError(
                f"table {self._name}: {'.'.join(names)} cannot be added: structs inside arrays and "
                "maps cannot get new fields; create the table again with the new type"
            )

    def _order(self) -> Callable[[], OpenTable] | None:
        moves = [change for change in self._of(_ADD, _POSITION) if change["position"] is not None]
        if not moves:
            return None

        def move() -> OpenTable:
            before = list(self._table.schema.names)
            names = list(before)
            for change in moves:
                name = path_of(self._table.schema, change["column"])
                after = [path_of(self._table.schema, [place]) for place in change["position"]]
                if name in after:
                    raise InvalidInputError(
                        f"table {self._name}: column {name} cannot be moved behind itself; name "
                        "another column after AFTER"
                    )
                names.remove(name)
                names.insert(names.index(after[0]) + 1 if after else 0, name)
            return (
                self._table
                if names == before
                else reorder_columns(self._table, names, self._options)
            )

        return move


def _nested(fields: Sequence[tuple[Sequence[str], pa.Field]]) -> list[pa.Field]:
    """Return the fields below the structs that their paths name."""
    groups: dict[str, list[tuple[Sequence[str], pa.Field]]] = {}
    for path, field in fields:
        groups.setdefault(path[0], []).append((path[1:], field))
    return [
        group[0][1] if not group[0][0] else pa.field(name, pa.struct(_nested(group)))
        for name, group in groups.items()
    ]
