"""One field of a schema, with all fields below it.

A field that was parsed is written back from the bytes of its message, so it keeps parts that this
release does not know.

Specification: format/table/schema; `protos/file.proto`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lance_spark.encoding.field_metadata import BLOB_KEY, BLOB_V2, is_packed
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.arrow_fields import field_parts
from lance_spark.file.schema.keys import set_keys
from lance_spark.file.schema.logical_types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    arrow_type,
    takes_children,
)
from lance_spark.proto import file_pb2 as pb

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
    - `logical_type`: See `lance_spark.file.schema.logical_types`.
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
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)
    parent_id: int = -1
    encoding: int = 0
    carried: bytes = field(default=b"", repr=False, compare=False)
    unread: tuple[Field, ...] = field(default=(), repr=False, compare=False)
    dictionary_pages: bytes = field(default=b"", repr=False, compare=False)

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
