"""One field of a schema, with all fields below it.

A field that was parsed is written back from the bytes of its message, so it keeps parts that this
release does not know.

Specification: format/table/schema; `protos/file.proto`.
"""

from __future__ import annotations

import ctypes
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from dataclasses import field as dataclass_field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.meta import BLOB_KEY, BLOB_V2, FIELD_ID, is_packed, is_true
from lance_spark.encoding.v2_1.leaf_columns import child_fields
from lance_spark.errors import InvalidInputError, UnsupportedTypeError
from lance_spark.file.schema.types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    JSON,
    arrow_type,
    check_storage,
    is_leaf_type,
    logical_type,
    storage_type,
    takes_children,
)
from lance_spark.proto import file_pb2 as pb

# --------------------------------------------------------------------------------------------------
# The parts of an Arrow field that a Lance schema stores: its type string, its children, and its
# metadata.
#
# Extension types are stored as their storage types; name and serialised parameters become field
# metadata, as in Arrow's own exchange formats. pyarrow does not show the parameters of built-in
# extension types, so they are read from the C data interface, where the metadata of a field is::
#
#     int32 pairs | per pair: int32 length, key, int32 length, value
#
# Specification: format/table/schema; Arrow C data interface.


class FieldParts(NamedTuple):
    """The parts of an Arrow field.

    - `children`: The fields that a Lance schema lists below it.
    """

    logical_type: str
    children: list[pa.Field]
    metadata: dict[str, bytes]


def field_parts(field: pa.Field) -> FieldParts:
    """Return the parts of an Arrow field.

    Raises UnsupportedTypeError: Lance cannot store the type.
    """
    tags = field.metadata
    if tags is None and is_leaf_type(field.type):
        return FieldParts(_leaf_name(field.type) or logical_type(field.type, field.name), [], {})
    dtype = storage_type(field.type)
    metadata = {key.decode(errors="replace"): value for key, value in (tags or {}).items()}
    metadata.pop(FIELD_ID, None)
    if isinstance(field.type, pa.BaseExtensionType):
        metadata[EXTENSION_NAME] = str(field.type.extension_name).encode()
        metadata[EXTENSION_METADATA] = _extension_parameters(field.type)
    tag = metadata.get(EXTENSION_NAME)
    name = logical_type(dtype, field.name)
    if tag == JSON.encode() and name == "large_binary":
        name = "json"
    elif tag == ARROW_JSON.encode():
        if name not in ("string", "large_string"):
            raise UnsupportedTypeError(
                f"field {field.name!r}: arrow.json is an extension of strings, not of {dtype}"
            )
        name = "json"
        metadata[EXTENSION_NAME] = JSON.encode()
    elif tag is not None:
        check_storage(field)
    return FieldParts(name, _children(field.with_type(dtype)), metadata)


@lru_cache(maxsize=256)
def _leaf_name(dtype: pa.DataType) -> str | None:
    """Return the logical type of a type without children; None if Lance cannot store it."""
    try:
        return logical_type(dtype, "")
    except UnsupportedTypeError:
        return None


def _children(field: pa.Field) -> list[pa.Field]:
    dtype = field.type
    if pat.is_fixed_size_list(dtype) and not pat.is_struct(storage_type(dtype.value_type)):
        return []
    return child_fields(field) if dtype.num_fields else []


class ArrowSchema(ctypes.Structure):
    """The struct of that name of Arrow's C data interface."""


ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))),
    ("private_data", ctypes.c_void_p),
]


def _extension_parameters(dtype: pa.BaseExtensionType) -> bytes:
    if isinstance(dtype, pa.ExtensionType):
        return bytes(dtype.__arrow_ext_serialize__())
    exported = ArrowSchema()
    dtype._export_to_c(ctypes.addressof(exported))
    try:
        return dict(metadata_items(exported.metadata)).get(EXTENSION_METADATA.encode(), b"")
    finally:
        exported.release(ctypes.byref(exported))


def metadata_items(address: int | None) -> list[tuple[bytes, bytes]]:
    """Return all keys and values of metadata of the C data interface, in their order.

    - `address`: Of the number of pairs, which the length and the bytes of each key and value
      follow. The numbers have 32 bits.
    """
    if not address:
        return []
    position = address

    def number() -> int:
        nonlocal position
        position += 4
        return ctypes.c_int32.from_address(position - 4).value

    def data() -> bytes:
        nonlocal position
        size = number()
        position += size
        return ctypes.string_at(position - size, size)

    return [(data(), data()) for _ in range(number())]


# --------------------------------------------------------------------------------------------------
# The fields of the primary key and of the clustering key: metadata and members of their messages.
#
# A table cannot be read by pylance if a field of its primary key is nullable, is below a nullable
# field, has children, or is below a list or a map.

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_CLUSTERING_KEY = "lance-schema:unenforced-clustering-key"


def is_key(name: str) -> bool:
    """Return whether a key of the metadata of a field makes it a part of the primary key."""
    return name == PRIMARY_KEY or name.startswith(f"{PRIMARY_KEY}:")


def set_keys(proto: pb.Field, metadata: Mapping[str, bytes]) -> None:
    """Set the key fields of a message from the metadata of the field, as pylance does."""
    if not metadata:
        return
    position_key = f"{PRIMARY_KEY}:position"
    position = _position(metadata, position_key)
    if position_key in metadata or is_true(metadata.get(PRIMARY_KEY)):
        proto.unenforced_primary_key = True
        proto.unenforced_primary_key_position = position
    position_key = f"{_CLUSTERING_KEY}:position"
    if position_key in metadata:
        proto.unenforced_clustering_key_position = _position(metadata, position_key)


def _position(metadata: Mapping[str, bytes], key: str) -> int:
    value = metadata.get(key, b"0")
    if not value.isdigit() or len(value) > 9:
        raise InvalidInputError(f"field metadata {key!r} must be a number, not {value!r}")
    return int(value)


def wrong_keys(fields: Collection[pb.Field]) -> Iterator[tuple[pb.Field, str]]:
    """Yield each field that cannot be in a primary key but is, and the reason."""
    keys = [field for field in fields if field.unenforced_primary_key]
    if not keys:
        return
    by_id = {field.id: field for field in fields}
    parents = {field.parent_id for field in fields}
    for field in keys:
        path = [field]
        # A path that leads back to itself is refused elsewhere.
        while path[0].parent_id in by_id and len(path) <= len(by_id):
            path.insert(0, by_id[path[0].parent_id])
        nullable = next((node.name for node in path if node.nullable), None)
        if field.id in parents:
            reason = "it has fields below it"
        elif nullable is not None:
            reason = f"field {nullable!r} is nullable"
        elif any(node.logical_type != "struct" for node in path[:-1]):
            reason = "it is in a list or a map"
        else:
            continue
        yield field, f"cannot be in the primary key ({PRIMARY_KEY}), because {reason}"


# --------------------------------------------------------------------------------------------------
# One field of a schema, with all fields below it.

#: The children of a blob column of version 2.2 in the schema of a data file, and in its pages.
BLOB_DESCRIPTOR = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)

#: Messages have ids of 32 bits.
MAX_FIELD_ID = 2**31 - 1
_EXTENSION_KEYS = (EXTENSION_NAME, EXTENSION_METADATA)


class PicklesFields:
    """Pickles the fields of a dataclass without its cached properties."""

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: self.__dict__[f.name] for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Field(PicklesFields):
    """One field of a schema, with all fields below it.

    - `id`: Unique within the table; -1 for the parts of a stored blob.
    - `logical_type`: See `lance_spark.file.schema.types`.
    - `metadata`: The metadata of the Arrow field, extension names included.
    - `parent_id`: -1 for a top-level field.
    - `encoding`: A hint that only version 0.1 needs.
    - `carried`: The message that the field was parsed from; empty for a new field.
    - `dictionary_pages`: For a dictionary of a table of version 0.1, the bytes with its values; see
      `lance_spark.file.v0_1.dictionaries`.
    - `unread`: Children that a selection left out. If a fragment has none of the selected children,
      they show whether the struct is null.
    """

    name: str
    id: int
    logical_type: str
    nullable: bool = True
    children: tuple[Field, ...] = ()
    metadata: Mapping[str, bytes] = dataclass_field(default_factory=dict, hash=False)
    parent_id: int = -1
    encoding: int = 0
    carried: bytes = dataclass_field(default=b"", repr=False, compare=False)
    unread: tuple[Field, ...] = dataclass_field(default=(), repr=False, compare=False)
    dictionary_pages: bytes = dataclass_field(default=b"", repr=False, compare=False)

    @cached_property
    def arrow_field(self) -> pa.Field:
        """The Arrow field, of storage type: extension types are named in its metadata.

        A blob of version 2.2 is the struct of its descriptor, as a read returns it. JSON is text.
        Raises UnsupportedTypeError: the logical type is unknown.
        """
        metadata = self.metadata
        if metadata and metadata.get(EXTENSION_NAME) == BLOB_V2:
            return pa.field(self.name, BLOB_DESCRIPTOR, self.nullable, self._blob_metadata())
        children = [child.arrow_field for child in self.children]
        dtype = arrow_type(self.logical_type, children, self.name)
        if self.logical_type == "json":
            metadata = {**metadata, EXTENSION_NAME: ARROW_JSON.encode()}
        # Arrow refuses a column of type null that must not be null.
        nullable = self.nullable or self.logical_type == "null"
        return pa.field(self.name, dtype, nullable, dict(metadata) if metadata else None)

    def to_arrow(self) -> pa.Field:
        """Return `arrow_field`."""
        return self.arrow_field

    @property
    def is_packed(self) -> bool:
        """Whether a struct is stored as one column, row by row."""
        return bool(self.metadata) and is_packed(self.metadata)

    @property
    def is_blob(self) -> bool:
        """Whether the values are stored outside of the pages.

        The key marks a blob by its presence, as in pylance: ``lance-encoding:blob = false`` is a
        blob too.
        """
        return bool(self.metadata) and (
            BLOB_KEY in self.metadata or self.metadata.get(EXTENSION_NAME) == BLOB_V2
        )

    @property
    def has_blobs(self) -> bool:
        """Whether the field, or a field below it, is a blob."""
        # Most fields have no children, and a cached property costs more than this test.
        return self.is_blob or (bool(self.children) and self._holds_blobs)

    @cached_property
    def _holds_blobs(self) -> bool:
        return any(child.has_blobs for child in self.children)

    @property
    def has_json(self) -> bool:
        """Whether the field, or a field below it, is JSON."""
        return self.logical_type == "json" or (bool(self.children) and self._holds_json)

    @cached_property
    def _holds_json(self) -> bool:
        # A damaged schema can list children of a type without children; its arrays do not have
        # them.
        return takes_children(self.logical_type) and any(child.has_json for child in self.children)

    @property
    def num_fields(self) -> int:
        """The number of fields: this field and all fields below it."""
        return 1 + sum(child.num_fields for child in self.children) if self.children else 1

    def _blob_metadata(self) -> dict[str, bytes]:
        metadata = {k: v for k, v in self.metadata.items() if k not in _EXTENSION_KEYS}
        return {**metadata, BLOB_KEY: b"true", "lance-encoding:packed": b"true"}

    @property
    def is_leaf(self) -> bool:
        """Whether data files name this field, and no field below it: it has no children, or is a
        packed struct or a blob.
        """
        if not self.children or self.is_blob:
            return True
        return self.logical_type == "struct" and self.is_packed

    @property
    def leaf_ids(self) -> set[int]:
        """The ids of the leaves at and below this field."""
        if self.is_leaf:
            return {self.id}
        return {number for child in self.children for number in child.leaf_ids}

    def walk(self) -> Iterator[Field]:
        """Yield the field and all fields below it, depth-first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> Field:
        """Return the child with a name. Raises InvalidInputError: the child does not exist."""
        return find_field(name, self.children, f"field {self.name!r}")

    def to_proto(self) -> pb.Field:
        """Return the message of this field alone.

        Raises InvalidInputError: the id is too great. New fields have ids after all that were used.
        """
        if self.id > MAX_FIELD_ID:
            raise InvalidInputError(
                f"field {self.name!r} would have the id {self.id}, but ids are at most "
                f"{MAX_FIELD_ID}; write the rows to a new table"
            )
        if not self.carried and not self.metadata:
            return pb.Field(
                name=self.name,
                id=self.id,
                parent_id=self.parent_id,
                logical_type=self.logical_type,
                nullable=self.nullable,
                encoding=self.encoding,  # type: ignore[arg-type]
            )
        proto: pb.Field = pb.Field.FromString(self.carried)
        proto.name = self.name
        proto.id = self.id
        proto.parent_id = self.parent_id
        proto.logical_type = self.logical_type
        proto.nullable = self.nullable
        proto.encoding = self.encoding  # type: ignore[assignment]
        proto.extension_name = self.metadata.get(EXTENSION_NAME, b"").decode(errors="replace")
        if self.carried:
            proto.metadata.clear()
        for key, value in self.metadata.items():
            proto.metadata[key] = value
        if not self.carried:
            set_keys(proto, self.metadata)
        return proto

    @classmethod
    def from_arrow(cls, arrow: pa.Field, first_id: int, parent_id: int = -1) -> Field:
        """Return a new field with ids from `first_id` on, depth-first.

        Raises UnsupportedTypeError: Lance cannot store the type. Raises InvalidInputError: two
        children have the same name, or a name has a NUL character.
        """
        parts, name = field_parts(arrow), arrow.name
        check_name(name, is_column=False)
        children: list[Field] = []
        if parts.children:
            check_unique([child.name for child in parts.children], f"field {name!r}")
            next_id = first_id + 1
            for child in parts.children:
                children.append(cls.from_arrow(child, next_id, first_id))
                next_id += children[-1].num_fields
        return cls(
            name,
            first_id,
            parts.logical_type,
            arrow.nullable,
            tuple(children),
            parts.metadata,
            parent_id,
            _encoding_hint(parts.logical_type),
        )


def reduced_to_path(path: Sequence[Field]) -> Field:
    """Return the first field of a path, reduced to the fields on the path."""
    node = path[-1]
    for above in reversed(path[:-1]):
        node = replace(above, children=(node,))
    return node


def find_field(name: str, nodes: Sequence[Field], owner: str) -> Field:
    """Return the field with a name; the error suggests a similar name in `owner`."""
    for node in nodes:
        if node.name == name:
            return node
    names = [node.name for node in nodes]
    folded = [candidate for candidate in names if candidate.lower() == name.lower()]
    similar = folded or difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {similar[0]!r}?" if similar else f"it has {names[:20]}"
    raise InvalidInputError(f"{owner} has no field {name!r}; {hint}")


def check_unique(names: Sequence[str], owner: str) -> None:
    """Raise InvalidInputError if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"{owner} has two fields named {name!r}; rename one")
        seen.add(name)


def _encoding_hint(logical: str) -> int:
    if logical in ("struct", "null"):
        return int(pb.NONE)
    if logical in ("string", "binary", "large_string", "large_binary", "json"):
        return int(pb.VAR_BINARY)
    return int(pb.DICTIONARY if logical.startswith("dict:") else pb.PLAIN)


def check_name(name: str, *, is_column: bool) -> None:
    """Raise an error for a name that pylance cannot read.

    - `is_column`: Whether the field is a column, not a field below one.

    Raises InvalidInputError.
    """
    if is_column and not name:
        raise InvalidInputError("a column has no name; give it one")
    # pylance takes names of columns for paths, with dots and quotes, and its process ends at a NUL
    # character.
    characters = {"\0": "a NUL character"}
    if is_column:
        characters |= {".": "a dot", "`": "a backtick"}
    for character, text in characters.items():
        if character in name:
            raise InvalidInputError(f"column {name!r} has {text} in its name; rename it")


def column_fields(field: Field, version: tuple[int, int]) -> Iterator[Field]:
    """Yield the fields at and below a field that have columns in a file, in the order of the
    columns.

    In version 2.0 every field has a column, from 2.1 on only leaves have one, depth-first in both.
    A packed struct, a fixed-size list of plain values and a blob are leaves, also with fields below
    them; in 2.0 any fixed-size list is a leaf. Specification: format/file, "Columns".
    """
    is_2_0 = version == (2, 0)
    is_leaf = not field.children or field.is_packed or field.is_blob
    is_leaf = is_leaf or (is_2_0 and field.logical_type.startswith("fixed_size_list:"))
    if is_leaf or is_2_0:
        yield field
    if not is_leaf:
        for child in field.children:
            yield from column_fields(child, version)
