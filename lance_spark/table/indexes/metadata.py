"""`Index`: a segment of an index as programs hand it on that build indexes in several processes.

The names are those of pylance, whose objects are accepted, too.
"""

from __future__ import annotations

import datetime
import uuid as uuid_module
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.table.indexes import sections


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A file of a segment, by its path below the folder of the segment."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Index:
    """A segment of an index.

    Attributes
    ----------
    uuid : str
    name : str
        Name of the index.
    fields : list of int
        Ids of the indexed fields.
    dataset_version : int
        The version that it was built on.
    fragment_ids : iterable of int
        The fragments that it covers.
    index_version : int
    created_at : datetime, optional
    base_id : int, optional
        The base path that has the files.
    files : list of IndexFile, optional
    index_details : (str, bytes), optional
        Type and bytes of the message that describes the index.
    covering_fields : list of int
        Must be empty.
    """

    uuid: str
    name: str
    fields: Sequence[int]
    dataset_version: int
    fragment_ids: Iterable[int]
    index_version: int
    created_at: datetime.datetime | None = None
    base_id: int | None = None
    files: Sequence[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: Sequence[int] = field(default_factory=list)


def index_of(segment: table_pb2.IndexMetadata) -> Index:
    """Return a segment by pylance's names. Raises CorruptTableError."""
    created = None
    if segment.HasField("created_at"):
        created = datetime.datetime.fromtimestamp(segment.created_at / 1000, datetime.UTC)
    return Index(
        uuid=sections.uuid_of(segment),
        name=segment.name,
        fields=list(segment.fields),
        dataset_version=segment.dataset_version,
        fragment_ids=sections.fragment_bitmap(segment) or BitMap(),
        index_version=segment.index_version,
        created_at=created,
        base_id=segment.base_id if segment.HasField("base_id") else None,
        files=[IndexFile(file.path, file.size_bytes) for file in segment.files],
        index_details=(segment.index_details.type_url, segment.index_details.value),
    )


def segment_of(index: Any) -> table_pb2.IndexMetadata:
    """Return the message of an `Index`, of this package or of pylance.

    Raises InvalidInputError: it is not an index, or its attributes have other types.
    """
    try:
        message = table_pb2.IndexMetadata(
            fields=list(index.fields),
            name=index.name,
            dataset_version=index.dataset_version,
            index_version=index.index_version,
            files=[
                table_pb2.IndexFile(path=file.path, size_bytes=file.size_bytes)
                for file in index.files or ()
            ],
        )
        message.uuid.uuid = uuid_module.UUID(index.uuid).bytes
        sections.set_fragment_bitmap(message, BitMap(index.fragment_ids))
        if index.created_at is not None:
            message.created_at = int(index.created_at.timestamp() * 1000)
        if index.base_id is not None:
            message.base_id = index.base_id
        if index.index_details is not None:
            message.index_details.type_url, message.index_details.value = index.index_details
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"{type(index).__name__} is not an Index of create_index_uncommitted: {error}"
        ) from None
    if getattr(index, "covering_fields", None):
        raise InvalidInputError(f"index {message.name!r}: covering_fields must be empty")
    return message
