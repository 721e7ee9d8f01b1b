"""Metadata of fields, between Lance tables and Spark.

Metadata that a user or another client has set travels both ways, so that a table that Spark reads
and writes again has it:

| field of Lance | field of Spark |
| --- | --- |
| `comment` and other texts | the same keys and texts |
| values that are no text in UTF-8 | `lance.binary`: base64 texts by key |
| `spark.sql.metadata`: JSON | values of Spark that are no texts, as attributes of Spark ML |
| extension types (`ARROW:extension:...`) | the same keys, as long as the type fits |
| metadata of elements, keys and values | `lance.children` of the column, which Spark's types lack |
| metadata of the schema | `lance.schema` of each column, or of the first ones if it is long |
| `spark.sql.default`: the default in SQL | the same; `CURRENT_DEFAULT` in tables by name |

Some keys belong to another mechanism, and stay where they are:

| keys | where they are |
| --- | --- |
| `arrow.fixed-size-list.size` and others (`MARKERS`) | Spark only: Lance's type has the fact |
| `spark.sql.type`, extensions of VARIANT and geometries | Lance only: Spark's type has the fact |
| names that begin with two underscores, watermarks, generated columns | Spark's own, of one plan |
| the primary key of a column that may be null | nowhere: other clients could not read the table |
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from lance_spark.encoding.meta import BLOB_V2, FIELD_ID
from lance_spark.errors import UnsupportedTypeError
from lance_spark.file.schema.field import field_parts, is_key
from lance_spark.file.schema.types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    JSON,
    SPARK_TYPE,
    check_storage,
)

VECTOR_SIZE = "arrow.fixed-size-list.size"
FLOAT16 = "arrow.float16"
LARGE_STRING = "arrow.large_var_char"
LARGE_BINARY = "arrow.large_var_binary"
BYTE_WIDTH = "arrow.fixed-size-binary.byte-width"
JSON_MARK = "arrow.json"
#: Keys of Spark's fields that record the Arrow type of a column.
MARKERS = frozenset({VECTOR_SIZE, FLOAT16, LARGE_STRING, LARGE_BINARY, BYTE_WIDTH})

#: Key of both: the comment of a column.
COMMENT = "comment"
#: Key of both: the default of a column, in SQL.
DEFAULT = "spark.sql.default"
#: Keys by which Spark takes a text for the default of a column.
CURRENT_DEFAULT, EXISTS_DEFAULT = "CURRENT_DEFAULT", "EXISTS_DEFAULT"
#: Key of Spark's fields: metadata of the elements, keys and values below a column.
CHILDREN = "lance.children"
#: Key of the fields of Spark's schema: the metadata of the schema.
SCHEMA = "lance.schema"
#: Characters of the metadata of a schema in all fields together. Spark sends them with each plan.
_MAX_SCHEMA_TEXT = 64 << 10

_TYPED = "spark.sql.metadata"
_BINARY = "lance.binary"
_EXTENSION = (EXTENSION_NAME, EXTENSION_METADATA)
#: Extension types that only `mapping` gives to a field.
_WITH_OWN_RULES = (ARROW_JSON, JSON, BLOB_V2.decode())
#: Keys of Lance fields that Spark's fields do not have.
_ONLY_LANCE = frozenset({SPARK_TYPE, _TYPED, FIELD_ID})
#: Keys of Spark's fields that Lance fields do not have.
_ONLY_SPARK = frozenset(
    {*MARKERS, JSON_MARK, CHILDREN, SCHEMA, _BINARY, CURRENT_DEFAULT, EXISTS_DEFAULT}
    | {"GENERATION_EXPRESSION", "spark.watermarkDelayMs", "lance_spark.options"}
    | {"identity.start", "identity.step", "identity.allowExplicitInsert"}
)
_SPARK_PREFIX = "__"
#: Texts of Spark under such keys would be taken for records of this package.
_RECORD_PREFIXES = ("spark.sql.", "lance:")
_ENCODING_PREFIX = "lance-encoding:"


def to_spark(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return Spark's metadata for the metadata of a Lance field, or of a schema."""
    results: dict[str, Any] = {}
    binary: dict[str, str] = {}
    typed: Any = None
    for name, value in metadata.items():
        key = name.decode(errors="replace")
        if key == _TYPED:
            typed = _parsed(value)
        elif key not in _ONLY_LANCE:
            try:
                results[key] = value.decode()
            except UnicodeDecodeError:
                binary[key] = base64.b64encode(value).decode()
    if binary:
        results[_BINARY] = binary
    return {**typed, **results} if isinstance(typed, dict) else results


def to_lance(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the metadata of a Lance field for the metadata of Spark's field.

    Extension types are left out; see `with_extension`.
    """
    results: dict[str, bytes] = {}
    typed: dict[str, Any] = {}
    for key, value in metadata.items():
        if key in _ONLY_SPARK or key in _EXTENSION or key.startswith(_SPARK_PREFIX):
            continue
        if key.startswith(_ENCODING_PREFIX) and not isinstance(value, str):
            results[key] = json.dumps(value).encode()
        elif isinstance(value, str) and (key == DEFAULT or not key.startswith(_RECORD_PREFIXES)):
            results[key] = value.encode(errors="replace")
        else:
            typed[key] = value
    if isinstance(metadata.get(CURRENT_DEFAULT), str):
        results[DEFAULT] = metadata[CURRENT_DEFAULT].encode(errors="replace")
    if typed:
        results[_TYPED] = json.dumps(typed, ensure_ascii=False).encode(errors="replace")
    return {**_decoded(metadata.get(_BINARY)), **results}


def of_field(field: pa.Field) -> Mapping[bytes, bytes]:
    """Return the metadata of a field, in which an extension type is named."""
    if isinstance(field.type, pa.BaseExtensionType):
        return {key.encode(): value for key, value in field_parts(field).metadata.items()}
    return field.metadata or {}


def with_extension(field: pa.Field, metadata: Mapping[str, Any]) -> pa.Field:
    """Return a field with the extension type that Spark's metadata names, if its type fits.

    The metadata stays when an expression of the user changes the type of the column.
    """
    name = metadata.get(EXTENSION_NAME)
    if (
        not isinstance(name, str)
        or name in _WITH_OWN_RULES
        or EXTENSION_NAME.encode() in (field.metadata or {})
    ):
        return field
    parameters = to_lance({"p": str(metadata.get(EXTENSION_METADATA, ""))})["p"]
    binary = _decoded(metadata.get(_BINARY))
    extension = {
        EXTENSION_NAME: name,
        EXTENSION_METADATA: binary.get(EXTENSION_METADATA, parameters),
    }
    extended = field.with_metadata({**(field.metadata or {}), **extension})
    try:
        check_storage(extended)
    except UnsupportedTypeError:
        return field
    return extended


def max_copies(metadata: Mapping[str, Any]) -> int:
    """Return how many fields have the metadata of the schema, for queries that leave out others."""
    return max(1, _MAX_SCHEMA_TEXT // len(json.dumps(metadata)))


def schema_metadata(fields: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the metadata of a new table's schema: that of the first field which has one."""
    for metadata in fields:
        schema = metadata.get(SCHEMA)
        if isinstance(schema, Mapping):
            return to_lance(schema)
    return {}


def children(metadata: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return Spark's metadata of the elements (`element`), keys (`key`) or values (`value`) below
    a field.
    """
    of_children = metadata.get(CHILDREN)
    of_child = of_children.get(name) if isinstance(of_children, Mapping) else None
    return dict(of_child) if isinstance(of_child, Mapping) else {}


def without_wrong_keys(schema: pa.Schema) -> pa.Schema:
    """Return a schema in which no field that may be null is part of the primary key.

    A query, such as an outer join or `CREATE TABLE AS SELECT`, may have made it nullable.
    """
    return pa.schema([_without_wrong_keys(field, True) for field in schema], schema.metadata)


def _without_wrong_keys(field: pa.Field, required: bool) -> pa.Field:
    required = required and not field.nullable
    if pa.types.is_struct(field.type):
        fields = [_without_wrong_keys(child, required) for child in field.type]
        field = field.with_type(pa.struct(fields))
    metadata = field.metadata or {}
    if required or not any(is_key(key.decode(errors="replace")) for key in metadata):
        return field
    kept = {k: v for k, v in metadata.items() if not is_key(k.decode(errors="replace"))}
    return pa.field(field.name, field.type, field.nullable, kept or None)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # Another client may have changed it.
        return None


def _decoded(values: Any) -> dict[str, bytes]:
    """Return the bytes of base64 texts."""
    if not isinstance(values, Mapping):
        return {}
    results = {}
    for key, text in values.items():
        try:
            results[str(key)] = base64.b64decode(str(text), validate=True)
        except binascii.Error:
            continue
    return results
