"""The schema of a table or file: a tree of fields with ids, as manifests and file descriptors list
it.

On storage the tree is a list of `Field` messages, depth-first, each with its own id and its
parent's (-1 at the top). Ids are never used twice in a table: they tie the fields of a manifest to
the columns of a data file. Messages keep what this release knows nothing about: a field that was
parsed is written back from the bytes it came from.

One exception to the tree: the schema of a data file spells a blob column of version 2.2 as a packed
struct whose children all have id -1 and parent -1; they follow it in the list.

Specification: format/table/schema; `protos/file.proto`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.file.schema.arrow_fields import field_parts
from lance_spark.file.schema.logical_types import (
    ARROW_JSON,
    EXTENSION_METADATA,
    EXTENSION_NAME,
    arrow_type,
    takes_children,
)
from lance_spark.proto import file_pb2 as pb

#: What a blob column of version 2.2 has in its pages; its children in the schema of a data file.
BLOB_DESCRIPTOR = pa.struct(
    [
        pa.field("kind", pa.uint8(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("size", pa.uint64(), nullable=False),
        pa.field("blob_id", pa.uint32(), nullable=False),
        pa.field("blob_uri", pa.string(), nullable=False),
    ]
)

#: Extension of blob columns of version 2.2 and later.
BLOB_V2 = b"lance.blob.v2"
#: Metadata of blob columns, of those before 2.2 and of those in data files.
BLOB_KEY = "lance-encoding:blob"
_EXTENSION_KEYS = (EXTENSION_NAME, EXTENSION_METADATA)
_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_CLUSTERING_KEY = "lance-schema:unenforced-clustering-key"
_MAX_DEPTH = 64


class _Cached:
    """Pickles the fields of a dataclass without its cached properties."""

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: self.__dict__[f.name] for f in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Field(_Cached):
    """One field of a schema, with all fields below it.

    Attributes
    ----------
    name : str
    id : int
        Unique within the table; -1 for the parts of a stored blob.
    logical_type : str
        See `lance_spark.file.schema.logical_types`.
    nullable : bool
    children : tuple of Field
    metadata : mapping of str to bytes
        The metadata of the Arrow field, extension names included.
    parent_id : int
        -1 for a top-level field.
    encoding : int
        A hint that only version 0.1 needs.
    carried : bytes
        The message that the field was parsed from; empty for a new field.
    dictionary_pages : bytes
        Of a dictionary of a table of version 0.1: what its values lie in; see
        `legacy_dictionaries`.
    unread : tuple of Field
        Children that a selection has left out: they can tell whether a struct is null where a
        fragment has none of the others.
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

        A blob of version 2.2 is the struct that describes where its bytes are: that is what is
        read. JSON is text.

        Raises
        ------
        UnsupportedTypeError
            The logical type is unknown.
        """
        metadata = self.metadata
        if metadata and metadata.get(EXTENSION_NAME) == BLOB_V2:
            return pa.field(self.name, BLOB_DESCRIPTOR, self.nullable, self._blob_metadata())
        children = [child.arrow_field for child in self.children]
        dtype = arrow_type(self.logical_type, children, self.name)
        if self.logical_type == "json":
            metadata = {**metadata, EXTENSION_NAME: ARROW_JSON.encode()}
        # Arrow refuses a column of nothing but nulls that may not be null.
        nullable = self.nullable or self.logical_type == "null"
        return pa.field(self.name, dtype, nullable, dict(metadata) if metadata else None)

    def to_arrow(self) -> pa.Field:
        """Return `arrow_field`."""
        return self.arrow_field

    @property
    def is_packed(self) -> bool:
        """Whether a struct is stored as one column, row by row."""
        return bool(self.metadata) and any(
            self.metadata.get(key, b"").lower() == b"true"
            for key in ("lance-encoding:packed", "packed")
        )

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
        """Whether the field, or one below it, is a blob."""
        # Most fields have no children, and a property that is kept costs more than this test.
        return self.is_blob or (bool(self.children) and self._holds_blobs)

    @cached_property
    def _holds_blobs(self) -> bool:
        return any(child.has_blobs for child in self.children)

    @property
    def has_json(self) -> bool:
        """Whether the field or one below it is JSON."""
        return self.logical_type == "json" or (bool(self.children) and self._holds_json)

    @cached_property
    def _holds_json(self) -> bool:
        # A damaged schema can list children of a type without children; its arrays do not have
        # them.
        return takes_children(self.logical_type) and any(child.has_json for child in self.children)

    @property
    def num_fields(self) -> int:
        """The number of fields: this one and all below it."""
        return 1 + sum(child.num_fields for child in self.children) if self.children else 1

    def _blob_metadata(self) -> dict[str, bytes]:
        kept = {k: v for k, v in self.metadata.items() if k not in _EXTENSION_KEYS}
        return {**kept, BLOB_KEY: b"true", "lance-encoding:packed": b"true"}

    def walk(self) -> Iterator[Field]:
        """Yield the field and all fields below it, depth-first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def child(self, name: str) -> Field:
        """Return the child with a name.

        Raises
        ------
        InvalidInputError
            The child does not exist.
        """
        return _find(name, self.children, f"field {self.name!r}")

    def with_children(self, children: Iterable[Field]) -> Field:
        """Return the field with other children, their parent ids set."""
        return replace(
            self, children=tuple(replace(child, parent_id=self.id) for child in children)
        )

    def to_proto(self) -> pb.Field:
        """Return the message of this field alone."""
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

        Raises
        ------
        UnsupportedTypeError
            Lance cannot store the type.
        InvalidInputError
            Two children have the same name.
        """
        parts, name = field_parts(arrow), arrow.name
        children: list[Field] = []
        if parts.children:
            _check_unique([child.name for child in parts.children], f"field {name!r}")
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


@dataclass(frozen=True)
class Schema(_Cached):
    """The top-level fields of a table or file, and its metadata."""

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)

    @classmethod
    def from_protos(
        cls, protos: Iterable[pb.Field], metadata: Mapping[str, bytes] | None = None
    ) -> Schema:
        """Build the tree from `Field` messages.

        Raises
        ------
        CorruptFileError
            The messages do not form a tree.
        """
        return cls(FieldTree(list(protos)).fields(), dict(metadata or {}))

    def to_protos(self) -> list[pb.Field]:
        """Return the messages of all fields, depth-first."""
        return [node.to_proto() for node in self.walk()]

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> Schema:
        """Return a schema of new fields; ids count up from `first_id`, depth-first.

        Raises
        ------
        UnsupportedTypeError
            Lance cannot store a type.
        InvalidInputError
            Two sibling fields have the same name, or a top-level name contains a dot.
        """
        _check_unique(schema.names, "the schema")
        for name in schema.names:
            # pylance refuses such tables, as dots separate the names of children.
            if "." in name:
                raise InvalidInputError(f"column {name!r} has a dot in its name; rename it")
        new: list[Field] = []
        next_id = first_id
        for arrow in schema:
            new.append(Field.from_arrow(arrow, next_id))
            next_id += new[-1].num_fields
        metadata = {_text(key): value for key, value in (schema.metadata or {}).items()}
        return cls(tuple(new), metadata)

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema; see `Field.arrow_field`."""
        return self._arrow

    @property
    def names(self) -> list[str]:
        """Names of the top-level fields."""
        return [node.name for node in self.fields]

    @property
    def max_field_id(self) -> int:
        """The largest id in use; -1 if there are no fields."""
        return max((node.id for node in self.walk()), default=-1)

    def walk(self) -> Iterator[Field]:
        """Yield all fields, depth-first."""
        for node in self.fields:
            yield from node.walk()

    def field_by_id(self, field_id: int) -> Field | None:
        """Return the field with that id, at any depth, or None."""
        return self._by_id.get(field_id)

    def field(self, path: str) -> Field:
        """Return a field by its path, with dots between the names.

        A top-level field whose name contains dots has precedence.

        Raises
        ------
        InvalidInputError
            The field does not exist; the error suggests the most similar name.
        """
        return self.path(path)[-1]

    def path(self, path: str) -> tuple[Field, ...]:
        """Return a field and all fields above it, the top-level one first; see `field`."""
        for node in self.fields:
            if node.name == path:
                return (node,)
        head, *rest = path.split(".")
        result = [_find(head if rest else path, self.fields, "the schema")]
        for name in rest:
            result.append(result[-1].child(name))
        return tuple(result)

    def select(self, names: Sequence[str]) -> Schema:
        """Return a schema of these fields only, in this order.

        Parameters
        ----------
        names : sequence of str
            Top-level names, or dotted paths to children. A struct is reduced to the named children,
            in stored order. Maps are selected whole.

        Raises
        ------
        InvalidInputError
            A field does not exist, or is named twice.
        """
        chosen: dict[str, list[tuple[Field, ...]]] = {}
        for name in names:
            path = self.path(name)
            paths = chosen.setdefault(path[0].name, [])
            if path in paths:
                raise InvalidInputError(f"column {name!r} is selected twice")
            paths.append(path)
        return replace(
            self, fields=tuple(_prune(paths[0][0], paths, 1) for paths in chosen.values())
        )

    @classmethod
    def of_paths(cls, paths: Iterable[tuple[Field, ...]]) -> Schema:
        """Return a schema of the last fields of some paths and their parents; see `path`."""
        chosen: dict[int, list[tuple[Field, ...]]] = {}
        for path in paths:
            chosen.setdefault(path[0].id, []).append(path)
        return cls(tuple(_prune(below[0][0], below, 1) for below in chosen.values()))

    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([node.arrow_field for node in self.fields], dict(self.metadata) or None)

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {node.id: node for node in self.walk() if node.id >= 0}


def _prune(node: Field, paths: list[tuple[Field, ...]], depth: int) -> Field:
    if node.logical_type == "map" or any(len(path) == depth for path in paths):
        return node
    kept = []
    unread = []
    for child in node.children:
        below = [path for path in paths if path[depth] is child]
        if below:
            kept.append(_prune(child, below, depth + 1))
        else:
            unread.append(child)
    return replace(node, children=tuple(kept), unread=tuple(unread))


def alone(path: Sequence[Field]) -> Field:
    """Return the first field of a path, reduced to the fields on the path."""
    node = path[-1]
    for above in reversed(path[:-1]):
        node = replace(above, children=(node,))
    return node


def _find(name: str, nodes: Sequence[Field], where: str) -> Field:
    for node in nodes:
        if node.name == name:
            return node
    names = [node.name for node in nodes]
    folded = [other for other in names if other.lower() == name.lower()]
    near = folded or difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {names[:20]}"
    raise InvalidInputError(f"{where} has no field {name!r}; {hint}")


def _check_unique(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInputError(f"{where} has two fields named {name!r}; rename one")
        seen.add(name)


class FieldTree:
    """A tree of fields from a list of messages; each field is built on first use.

    Parameters
    ----------
    protos : sequence of Field
        Messages, depth-first.

    Raises
    ------
    CorruptFileError
        The messages do not form a tree.
    """

    def __init__(self, protos: Sequence[pb.Field]) -> None:
        self._protos = protos
        self._top: list[int] = []
        self._below: dict[int, list[int]] = {}
        self._position: dict[int, int] = {}
        self._built: dict[int, Field] = {}
        depth: list[int] = []
        for index, proto in enumerate(protos):
            field_id, parent_id = proto.id, proto.parent_id
            parent = None
            if parent_id >= 0:
                parent = self._position.get(parent_id)
                if parent is None:
                    raise CorruptFileError(
                        f"field {proto.name!r} (id {field_id}) of the schema stands before its "
                        f"parent {parent_id}"
                    )
            elif field_id < 0:
                parent = _blob_above(protos, index)
            if field_id >= 0 and self._position.setdefault(field_id, index) != index:
                raise CorruptFileError(f"the schema has two fields with id {field_id}")
            if parent is None:
                depth.append(0)
                self._top.append(index)
                continue
            depth.append(depth[parent] + 1)
            if depth[index] > _MAX_DEPTH:
                raise CorruptFileError(f"the schema is nested more than {_MAX_DEPTH} fields deep")
            self._below.setdefault(parent, []).append(index)

    def fields(self) -> tuple[Field, ...]:
        """Return the top-level fields."""
        return tuple(self._build(position) for position in self._top)

    def field_by_id(self, field_id: int) -> Field | None:
        """Return the field with that id, at any depth, or None."""
        position = self._position.get(field_id)
        return None if position is None else self._build(position)

    def _build(self, at: int) -> Field:
        result = self._built.get(at)
        if result is None:
            children = tuple(self._build(child) for child in self._below.get(at, ()))
            result = self._built[at] = _from_proto(self._protos[at], children)
        return result


def _blob_above(protos: Sequence[pb.Field], at: int) -> int | None:
    """Return the position of the blob that contains an anonymous field."""
    for back in range(1, BLOB_DESCRIPTOR.num_fields + 1):
        if back > at:
            return None
        proto = protos[at - back]
        if proto.logical_type == "struct" and BLOB_KEY in proto.metadata:
            return at - back if protos[at].name == BLOB_DESCRIPTOR.field(back - 1).name else None
        if proto.id >= 0 or proto.parent_id >= 0:
            return None
    return None


def _from_proto(proto: pb.Field, children: tuple[Field, ...]) -> Field:
    metadata = dict(proto.metadata)
    if proto.extension_name:
        metadata.setdefault(EXTENSION_NAME, proto.extension_name.encode())
    return Field(
        proto.name,
        proto.id,
        proto.logical_type,
        proto.nullable,
        children,
        metadata,
        proto.parent_id,
        int(proto.encoding),
        proto.SerializeToString(deterministic=True),
    )


def _encoding_hint(logical: str) -> int:
    if logical in ("struct", "null"):
        return int(pb.NONE)
    if logical in ("string", "binary", "large_string", "large_binary", "json"):
        return int(pb.VAR_BINARY)
    return int(pb.DICTIONARY if logical.startswith("dict:") else pb.PLAIN)


def set_keys(proto: pb.Field, metadata: Mapping[str, bytes]) -> None:
    """Set the key fields of a message from the metadata of the field, as pylance does."""
    if not metadata:
        return
    place = f"{_PRIMARY_KEY}:position"
    position = _position(metadata, place)
    if place in metadata or metadata.get(_PRIMARY_KEY, b"").lower() in (b"true", b"1", b"yes"):
        proto.unenforced_primary_key = True
        proto.unenforced_primary_key_position = position
    place = f"{_CLUSTERING_KEY}:position"
    if place in metadata:
        proto.unenforced_clustering_key_position = _position(metadata, place)


def _position(metadata: Mapping[str, bytes], key: str) -> int:
    value = metadata.get(key, b"0")
    if not value.isdigit() or len(value) > 9:
        raise InvalidInputError(f"field metadata {key!r} must be a number, not {value!r}")
    return int(value)


def _text(key: bytes) -> str:
    return key.decode(errors="replace")
