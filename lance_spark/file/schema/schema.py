"""The schema of a table or file: a tree of fields with ids, as manifests and file descriptors list
it.

On storage the tree is a list of `Field` messages, depth-first, each with its own id and its
parent's (-1 at the top). Ids are never used twice in a table: they connect the fields of a manifest
with the columns of a data file. Messages keep parts that this release does not know: a field that
was parsed is written back from its bytes.

One exception to the tree: in the schema of a data file, a blob column of version 2.2 is a packed
struct whose children all have id -1 and parent -1. They follow it in the list.

Specification: format/table/schema; `protos/file.proto`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, wraps
from typing import Any, TypeVar

import pyarrow as pa

from lance_spark.encoding.meta import BLOB_KEY
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.file.schema.field import (
    BLOB_DESCRIPTOR,
    Field,
    PicklesFields,
    check_name,
    check_unique,
    find_field,
)
from lance_spark.file.schema.types import EXTENSION_NAME
from lance_spark.proto import file_pb2 as pb

# --------------------------------------------------------------------------------------------------
# Names of columns in another case, as Spark and other Lance clients accept them.


def spelled(schema: pa.Schema, path: str, *, exact: bool = False) -> str:
    """Return the path of a column with its names as the schema spells them.

    - `path`: Name of a column, or dotted path of a child of structs.
    - `exact`: Whether names in another case are other names.

    Returns the given path, if no column has it, or if several columns differ from it only in case.
    """
    if exact or path in schema.names:
        return path
    parts: list[str] = []
    fields: list[pa.Field] = list(schema)
    for part in path.split("."):
        name = _found(part, [field.name for field in fields])
        if name is None:
            return path
        dtype = next(field.type for field in fields if field.name == name)
        parts.append(name)
        is_struct = pa.types.is_struct(dtype)
        fields = [dtype.field(index) for index in range(dtype.num_fields)] if is_struct else []
    return ".".join(parts)


def _found(name: str, names: Iterable[str]) -> str | None:
    """Return the only name that is equal, or else equal in another case."""
    like = [other for other in names if other.lower() == name.lower()]
    if name in like:
        return name
    return like[0] if len(like) == 1 else None


# --------------------------------------------------------------------------------------------------
# The schema of a table or file: a tree of fields with ids, as manifests and file descriptors list
# it.

_MAX_DEPTH = 64
#: Number of schemas that a process keeps.
_KEPT = 32

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Schema(PicklesFields):
    """The top-level fields of a table or file, and its metadata."""

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict, hash=False)

    @classmethod
    def from_protos(
        cls, protos: Iterable[pb.Field], metadata: Mapping[str, bytes] | None = None
    ) -> Schema:
        """Build the tree from `Field` messages. Equal messages share one schema: the schema of a
        table is asked for by each query, and has thousands of fields or one.

        Raises CorruptFileError: the messages do not form a tree.
        """
        message = pb.Schema(fields=protos, metadata=dict(metadata or {}))
        return _schema_of(message.SerializeToString(deterministic=True))

    def to_protos(self) -> list[pb.Field]:
        """Return the messages of all fields, depth-first."""
        return [node.to_proto() for node in self.walk()]

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> Schema:
        """Return a schema of new fields; ids count up from `first_id`, depth-first.

        Raises UnsupportedTypeError: Lance cannot store a type. Raises InvalidInputError: two
        sibling fields have the same name, or a name is one that `check_name` refuses.
        """
        check_unique(schema.names, "the schema")
        for name in schema.names:
            check_name(name, is_column=True)
        new: list[Field] = []
        next_id = first_id
        for arrow in schema:
            new.append(Field.from_arrow(arrow, next_id))
            next_id += new[-1].num_fields
        metadata = {
            key.decode(errors="replace"): value for key, value in (schema.metadata or {}).items()
        }
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

        A top-level field whose name contains dots has precedence. Raises InvalidInputError: the
        field does not exist; the error suggests the most similar name.
        """
        return self.path(path)[-1]

    def path(self, path: str) -> tuple[Field, ...]:
        """Return a field and all fields above it, the top-level one first; see `field`."""
        node = self._by_name.get(path)
        if node is not None:
            return (node,)
        head, *child_names = path.split(".")
        nodes = [find_field(head if child_names else path, self.fields, "the schema")]
        for name in child_names:
            nodes.append(nodes[-1].child(name))
        return tuple(nodes)

    def select(self, names: Sequence[str]) -> Schema:
        """Return a schema of these fields only, in this order.

        - `names`: Top-level names, or dotted paths to children. A struct is reduced to the named
          children, in stored order. Maps are selected whole.

        Raises InvalidInputError: a field does not exist, or is named twice.
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
    def _by_name(self) -> dict[str, Field]:
        # The first of equal names.
        return {node.name: node for node in reversed(self.fields)}

    @cached_property
    def _by_id(self) -> dict[int, Field]:
        return {node.id: node for node in self.walk() if node.id >= 0}


@lru_cache(maxsize=_KEPT)
def _schema_of(data: bytes) -> Schema:
    message = pb.Schema.FromString(data)
    return Schema(FieldTree(list(message.fields)).fields(), dict(message.metadata))


def kept(function: Callable[[Schema], _Result]) -> Callable[[Schema], _Result]:
    """Keep the result of a function with its schema. The result must not be changed."""

    @wraps(function)
    def result_of(schema: Schema) -> _Result:
        results: dict[Any, _Result] = schema.__dict__.setdefault("_results", {})
        if function not in results:
            results[function] = function(schema)
        return results[function]

    return result_of


def _prune(node: Field, paths: list[tuple[Field, ...]], depth: int) -> Field:
    if node.logical_type == "map" or any(len(path) == depth for path in paths):
        return node
    children = []
    unread = []
    for child in node.children:
        below = [path for path in paths if path[depth] is child]
        if below:
            children.append(_prune(child, below, depth + 1))
        else:
            unread.append(child)
    return replace(node, children=tuple(children), unread=tuple(unread))


class FieldTree:
    """A tree of fields from a list of messages; each field is built on first use.

    - `protos`: Messages, depth-first.

    Raises CorruptFileError: the messages do not form a tree.
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

    def _build(self, index: int) -> Field:
        result = self._built.get(index)
        if result is None:
            children = tuple(self._build(child) for child in self._below.get(index, ()))
            result = self._built[index] = _from_proto(self._protos[index], children)
        return result


def _blob_above(protos: Sequence[pb.Field], index: int) -> int | None:
    """Return the position of the blob that contains an anonymous field."""
    for distance in range(1, BLOB_DESCRIPTOR.num_fields + 1):
        if distance > index:
            return None
        proto = protos[index - distance]
        if proto.logical_type == "struct" and BLOB_KEY in proto.metadata:
            return (
                index - distance
                if protos[index].name == BLOB_DESCRIPTOR.field(distance - 1).name
                else None
            )
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
