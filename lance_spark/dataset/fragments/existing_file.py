"""The description of a data file that exists, for operations that a caller plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.open import open_file, version_in_manifests
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.storage.uri import check_relative
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import DATA


def fragment_of_file(table: OpenTable, path: str, fragment_id: int) -> Fragment:
    """Return a fragment of one file; see `DatasetFragment.create_from_file`."""
    check_relative(path)
    store, full_path = table.paths.locate(None, DATA, path)
    with closing(open_file(store.open(full_path))) as file:
        if not isinstance(file, FileReader):
            raise UnsupportedFeatureError(
                f"{file.source.name} has the version 0.1, whose files cannot be described; write "
                "its rows again"
            )
        name = file.source.name
        ids = dict(_pairs(file.schema.fields, table.schema.fields, name, ""))
        columns = file.own_columns
        major, minor = version_in_manifests(file.version)
        described = DataFile(
            path=path,
            fields=tuple(ids[field_id] for field_id in columns),
            column_indices=tuple(columns.values()),
            file_major_version=major,
            file_minor_version=minor,
            file_size_bytes=file.source.size,
        )
        return Fragment(fragment_id, (described,), file.num_rows)


def _pairs(
    own: Sequence[Field], fields: Sequence[Field], file: str, above: str
) -> Iterator[tuple[int, int]]:
    """Yield the ids of fields of a file, each with the id of the table's field of that name."""
    by_name = {field.name: field for field in fields}
    for field in own:
        path = f"{above}{field.name}"
        found = by_name.get(field.name)
        if found is None:
            raise InvalidInputError(
                f"{file}: the table has no column {path!r}; add it, or write a file without it"
            )
        if found.logical_type != field.logical_type:
            raise InvalidInputError(
                f"{file}: column {path!r} has the type {field.logical_type!r}, and "
                f"{found.logical_type!r} in the table"
            )
        yield field.id, found.id
        yield from _pairs(field.children, found.children, file, f"{path}.")
