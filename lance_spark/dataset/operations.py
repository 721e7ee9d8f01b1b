"""`LanceOperation`: operations by pylance's names and arguments, for `Dataset.commit`."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.arguments import instances
from lance_spark.dataset.fragments import as_fragments
from lance_spark.dataset.lance_schema import LanceSchema
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.bases import BaseLike, new_bases
from lance_spark.table.fragments.files import DataFile, Overlay
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes.sections import segment_of
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.indexes.updates import RewrittenIndex as IndexRewrite
from lance_spark.table.operations.append import Append, Overwrite
from lance_spark.table.operations.base import Operation
from lance_spark.table.operations.columns import DataOverlay, DataReplacement, Merge, Project
from lance_spark.table.operations.indexes import CreateIndex
from lance_spark.table.operations.metadata import Clone, MapUpdate, Restore, UpdateConfig
from lance_spark.table.operations.rewrite import Rewrite
from lance_spark.table.operations.rewrite import RewriteGroup as Group
from lance_spark.table.operations.update import Delete, Update, UpdateMode

# --------------------------------------------------------------------------------------------------
# Members of `LanceOperation` that are called as classes, and known to `isinstance`.
#
# An operation is planned by its arguments, which have the names of pylance, and kept in the class
# of `table.operations` that commits it.

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Overlays to add to a fragment.
OverlayGroup = transaction_pb2.Transaction.DataOverlayGroup


class _OperationAlias(type):
    """The class of a member: a call returns an object of the class `target`."""

    target: type
    make: Callable[..., Any]

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return cls.make(*arguments, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.target)


def operation_alias(target: type) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make a function the class of the objects that it returns.

    - `target`: The class of these objects.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        members = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__signature__": inspect.signature(function),
            "target": target,
            "make": function,
        }
        return cast("Callable[_P, _T]", _OperationAlias(function.__name__, (), members))

    return decorate


def overlay_file(
    data_file: DataFile,
    offsets: Iterable[int] | Iterable[Iterable[int]],
    committed_version: int | None,
) -> Overlay:
    """Return an overlay; see `LanceOperation.DataOverlayFile`."""
    sets: list[Any] = list(offsets)
    if not any(isinstance(item, Iterable) for item in sets):
        sets = [sets]
    elif len(sets) != len(data_file.fields):
        raise InvalidInputError(
            f"offsets: {len(sets)} sets of offsets for {len(data_file.fields)} fields of "
            f"{data_file.path!r}; give one for each field"
        )
    bitmaps = tuple(_bitmap(item, data_file.path) for item in sets)
    return Overlay(data_file, bitmaps, committed_version or 0)


def _bitmap(offsets: Iterable[int], path: str) -> bytes:
    """Return offsets as a Roaring bitmap."""
    try:
        numbers = list(offsets)
        rows = BitMap(numbers)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"offsets of overlay {path!r} must be numbers from 0 to 2**32 - 1: {error}"
        ) from None
    if len(rows) != len(numbers):
        raise InvalidInputError(
            f"offsets of overlay {path!r}: an offset occurs twice; the values of the file belong "
            "to distinct rows in increasing order"
        )
    data: bytes = rows.serialize()
    return data


def overlay_group(fragment_id: int, overlays: Iterable[Overlay]) -> OverlayGroup:
    """Return the overlays of a fragment; see `LanceOperation.DataOverlayGroup`."""
    return OverlayGroup(
        fragment_id=fragment_id, overlays=[overlay.to_proto() for overlay in overlays]
    )


def rewritten_index(
    old_id: str,
    new_id: str,
    new_details_type_url: str,
    new_details_value: bytes,
    new_index_version: int,
) -> RewrittenIndex:
    """Return a segment that was rewritten; see `LanceOperation.RewrittenIndex`."""
    try:
        ids = uuid.UUID(old_id).bytes, uuid.UUID(new_id).bytes
    except (ValueError, AttributeError, TypeError):
        raise InvalidInputError(
            f"old_id and new_id must be UUIDs, not {old_id!r} and {new_id!r}"
        ) from None
    details = table_pb2.IndexMetadata(index_version=new_index_version)
    details.index_details.type_url = new_details_type_url
    details.index_details.value = new_details_value
    return RewrittenIndex(*ids, details)


# --------------------------------------------------------------------------------------------------
# `LanceOperation`: operations by pylance's names and arguments, for `Dataset.commit`.

_MODES = {
    "": UpdateMode.REWRITE_ROWS,
    "rewrite_rows": UpdateMode.REWRITE_ROWS,
    "rewrite_columns": UpdateMode.REWRITE_COLUMNS,
}


class _Replacement(NamedTuple):
    fragment_id: int
    new_file: DataFile


class LanceOperation:
    """Operations that change a table, for `Dataset.commit`. The names are those of pylance.

    ``isinstance(transaction.operation, LanceOperation.Append)`` says what a transaction does.

    Examples
    --------
    >>> operation = LanceOperation.Append(write_fragments(rows, dataset))
    >>> Dataset.commit(dataset, operation, dataset.version)
    """

    @operation_alias(Append)
    @staticmethod
    def Append(fragments: Iterable[Fragment]) -> Operation:  # noqa: N802 - pylance's names
        """Return the operation that adds new fragments."""
        return Append(tuple(as_fragments(fragments)))

    @operation_alias(Overwrite)
    @staticmethod
    def Overwrite(  # noqa: N802
        new_schema: Schema | LanceSchema | pa.Schema,
        fragments: Iterable[Fragment],
        initial_bases: Iterable[BaseLike] | None = None,
    ) -> Operation:
        """Return the operation that replaces the schema and all rows, or creates a table.

        Parameters
        ----------
        new_schema : Schema or pa.Schema
            The fields of an Arrow schema are numbered from 0 on, as `write_fragments` with the mode
            ``create`` or ``overwrite`` numbers them.
        fragments : iterable of Fragment
        initial_bases : iterable of BasePath, optional
            Base paths of a new table.
        """
        schema = _schema(new_schema)
        return Overwrite(
            tuple(as_fragments(fragments)),
            tuple(schema.to_protos()),
            schema.metadata,
            initial_bases=tuple(base.to_proto() for base in new_bases(initial_bases or ())),
        )

    @operation_alias(Delete)
    @staticmethod
    def Delete(  # noqa: N802
        updated_fragments: Iterable[Fragment],
        deleted_fragment_ids: Iterable[int],
        predicate: str,
    ) -> Operation:
        """Return the operation that deletes rows.

        Parameters
        ----------
        updated_fragments : iterable of Fragment
            Fragments with new deletion files; see `DatasetFragment.delete`.
        deleted_fragment_ids : iterable of int
            Fragments without a remaining row.
        predicate : str
            The condition of the rows, as text.
        """
        return Delete(
            tuple(as_fragments(updated_fragments)), tuple(deleted_fragment_ids), predicate
        )

    @operation_alias(Merge)
    @staticmethod
    def Merge(  # noqa: N802
        fragments: Iterable[Fragment],
        schema: Schema | LanceSchema | pa.Schema,
        preserves_nullability: bool = False,
    ) -> Operation:
        """Return the operation that adds columns; see `DatasetFragment.merge_columns`.

        Parameters
        ----------
        fragments : iterable of Fragment
            All fragments of the version.
        schema : Schema or pa.Schema
            All columns of the table afterwards. The fields of an Arrow schema are numbered from 0
            on: a field must not get the id of another one so.
        preserves_nullability : bool
            Whether rows that another client adds without the new columns stay valid.
        """
        merged = _schema(schema)
        return Merge(
            tuple(as_fragments(fragments)),
            tuple(merged.to_protos()),
            merged.metadata,
            preserves_nullability,
            by_user=True,
        )

    @operation_alias(Project)
    @staticmethod
    def Project(  # noqa: N802
        schema: Schema | LanceSchema, preserves_nullability: bool = False
    ) -> Operation:
        """Return the operation that drops or renames columns, which keep their field ids."""
        return Project(tuple(_schema(schema).to_protos()), preserves_nullability)

    @operation_alias(Restore)
    @staticmethod
    def Restore(version: int) -> Operation:  # noqa: N802
        """Return the operation that makes an old version the newest one."""
        return Restore(version)

    @operation_alias(Group)
    @staticmethod
    def RewriteGroup(  # noqa: N802
        old_fragments: Iterable[Fragment], new_fragments: Iterable[Fragment]
    ) -> Group:
        """Return fragments, and those that replace them with the same rows."""
        return Group(tuple(as_fragments(old_fragments)), tuple(as_fragments(new_fragments)))

    @operation_alias(IndexRewrite)
    @staticmethod
    def RewrittenIndex(  # noqa: N802
        old_id: str,
        new_id: str,
        new_details_type_url: str,
        new_details_value: bytes,
        new_index_version: int,
    ) -> IndexRewrite:
        """Return a segment of an index, and the one that replaces it.

        Parameters
        ----------
        old_id, new_id : str
            UUIDs. The files of the new segment exist.
        new_details_type_url, new_details_value : str, bytes
            The message that describes the new segment.
        new_index_version : int

        Raises
        ------
        InvalidInputError
            An id is not a UUID.
        """
        return rewritten_index(
            old_id, new_id, new_details_type_url, new_details_value, new_index_version
        )

    @operation_alias(Rewrite)
    @staticmethod
    def Rewrite(  # noqa: N802
        groups: Iterable[Group], rewritten_indices: Iterable[IndexRewrite] = ()
    ) -> Operation:
        """Return the operation that replaces fragments by others with the same rows.

        Parameters
        ----------
        groups : iterable of RewriteGroup
        rewritten_indices : iterable of RewrittenIndex
            Segments of indexes that were written again with the new addresses of the rows.

        Raises
        ------
        InvalidInputError
            A group or a segment has another type.
        """
        return Rewrite(
            instances(groups, Group, "groups", "LanceOperation.RewriteGroup"),
            instances(
                rewritten_indices,
                IndexRewrite,
                "rewritten_indices",
                "LanceOperation.RewrittenIndex",
            ),
        )

    @operation_alias(Update)
    @staticmethod
    def Update(  # noqa: N802
        removed_fragment_ids: Iterable[int] = (),
        updated_fragments: Iterable[Fragment] = (),
        new_fragments: Iterable[Fragment] = (),
        fields_modified: Iterable[int] = (),
        fields_for_preserving_frag_bitmap: Iterable[int] = (),
        update_mode: str = "",
        updated_fragment_offsets: Mapping[int, bytes] | None = None,
    ) -> Operation:
        """Return the operation that changes rows.

        Parameters
        ----------
        removed_fragment_ids : iterable of int
            Fragments without a remaining row.
        updated_fragments : iterable of Fragment
            Fragments with new deletion files or data files; see `DatasetFragment.update_columns`.
        new_fragments : iterable of Fragment
            Fragments with the new rows.
        fields_modified : iterable of int
            Ids of fields whose values changed in place.
        fields_for_preserving_frag_bitmap : iterable of int
            Ids of fields whose indexes stay valid for moved rows.
        update_mode : str
            ``rewrite_rows`` (the default) or ``rewrite_columns``.
        updated_fragment_offsets : mapping of int to bytes, optional
            By fragment, a Roaring bitmap of the rows that changed in place.

        Raises
        ------
        InvalidInputError
            The mode is unknown, or a bitmap cannot be read.
        """
        if update_mode not in _MODES:
            raise InvalidInputError(
                f"update_mode must be one of 'rewrite_rows', 'rewrite_columns', not {update_mode!r}"
            )
        offsets = {}
        for number, data in (updated_fragment_offsets or {}).items():
            try:
                offsets[number] = BitMap.deserialize(data)
            except (ValueError, IndexError, MemoryError) as error:
                raise InvalidInputError(
                    f"updated_fragment_offsets: the bitmap of fragment {number} cannot be read: "
                    f"{error}"
                ) from None
        return Update(
            fragments=tuple(as_fragments(updated_fragments)),
            new_fragments=tuple(as_fragments(new_fragments)),
            removed_fragment_ids=tuple(removed_fragment_ids),
            fields_modified=tuple(fields_modified),
            fields_for_preserving_frag_bitmap=tuple(fields_for_preserving_frag_bitmap),
            mode=_MODES[update_mode],
            updated_offsets=offsets,
        )

    @operation_alias(CreateIndex)
    @staticmethod
    def CreateIndex(  # noqa: N802
        new_indices: Iterable[object], removed_indices: Iterable[object] = ()
    ) -> Operation:
        """Return the operation that adds and removes segments of indexes.

        Parameters
        ----------
        new_indices : iterable of Index
            Segments whose files exist; see `Dataset.create_index_uncommitted`. The name of each is
            the name of its index.
        removed_indices : iterable of Index
            Segments to remove.
        """
        return CreateIndex(
            tuple(map(segment_of, new_indices)), tuple(map(segment_of, removed_indices))
        )

    @operation_alias(MapUpdate)
    @staticmethod
    def UpdateMap(  # noqa: N802
        updates: Mapping[str, str | None], replace: bool = False
    ) -> MapUpdate:
        """Return an update of a map; None deletes a key."""
        return MapUpdate(dict(updates), replace)

    @operation_alias(UpdateConfig)
    @staticmethod
    def UpdateConfig(  # noqa: N802
        config_updates: MapUpdate | None = None,
        table_metadata_updates: MapUpdate | None = None,
        schema_metadata_updates: MapUpdate | None = None,
        field_metadata_updates: Mapping[int, MapUpdate] | None = None,
    ) -> Operation:
        """Return the operation that changes the configuration and metadata.

        The arguments are made by `UpdateMap`; those of `field_metadata_updates` by field id.
        """
        return UpdateConfig(
            config_updates,
            table_metadata_updates,
            schema_metadata_updates,
            dict(field_metadata_updates or {}),
        )

    @operation_alias(_Replacement)
    @staticmethod
    def DataReplacementGroup(  # noqa: N802
        fragment_id: int, new_file: DataFile
    ) -> tuple[int, DataFile]:
        """Return a fragment, and a file that replaces some of its columns."""
        return _Replacement(fragment_id, new_file)

    @operation_alias(DataReplacement)
    @staticmethod
    def DataReplacement(  # noqa: N802
        replacements: Sequence[tuple[int, DataFile]],
    ) -> Operation:
        """Return the operation that replaces whole columns of fragments."""
        return DataReplacement(tuple((number, file) for number, file in replacements))

    @operation_alias(Overlay)
    @staticmethod
    def DataOverlayFile(  # noqa: N802
        data_file: DataFile,
        offsets: Iterable[int] | Iterable[Iterable[int]],
        committed_version: int | None = None,
    ) -> Overlay:
        """Return new values of some rows of a fragment, which hide those of its data files.

        Parameters
        ----------
        data_file : DataFile
            The file with the values, in the order of the offsets.
        offsets : iterable of int, or iterable of iterable of int
            Offsets of the rows in the data files, which count deleted rows: the same for all
            fields of the file, or one collection for each field.
        committed_version : int, optional
            The version that added the overlay. A commit sets it.

        Raises
        ------
        InvalidInputError
            An offset is repeated or out of range, or the number of collections is wrong.
        """
        return overlay_file(data_file, offsets, committed_version)

    @operation_alias(OverlayGroup)
    @staticmethod
    def DataOverlayGroup(  # noqa: N802
        fragment_id: int, overlays: Iterable[Overlay]
    ) -> OverlayGroup:
        """Return a fragment, and overlays to add to it; the last one hides the others."""
        return overlay_group(fragment_id, overlays)

    @operation_alias(DataOverlay)
    @staticmethod
    def DataOverlay(groups: Iterable[OverlayGroup]) -> Operation:  # noqa: N802
        """Return the operation that adds overlays; see `Dataset.update` with ``overlay``.

        Other clients do not open a table with overlays, unless they allow them.
        """
        return DataOverlay(tuple(groups))

    @operation_alias(Clone)
    @staticmethod
    def Clone(  # noqa: N802
        is_shallow: bool,
        ref_name: str | None,
        ref_version: int,
        ref_path: str,
        branch_name: str | None,
    ) -> Operation:
        """Return the operation that creates a table which shares the files of a version.

        A commit of it, with any read version, is as `Dataset.shallow_clone`. The other clones
        are not committed, as in pylance: `Dataset.deep_clone` and `Dataset.create_branch` make
        them.

        Parameters
        ----------
        is_shallow : bool
            Whether the files are shared.
        ref_name : str or None
            Branch of the version; None for the main branch.
        ref_version : int
        ref_path : str
            Root of the table, or of the branch.
        branch_name : str or None
            The branch that the clone is; None for a table.
        """
        return Clone(is_shallow, ref_version, ref_path, ref_name, branch_name)


def _schema(schema: Schema | LanceSchema | pa.Schema) -> Schema:
    """Return a schema with field ids.

    Raises InvalidInputError: it is not a schema.
    """
    if isinstance(schema, pa.Schema):
        return Schema.from_arrow(schema)
    if isinstance(schema, LanceSchema):
        return schema._schema
    if not isinstance(schema, Schema):
        raise InvalidInputError(f"schema must be a schema, not {type(schema).__name__}")
    return schema
