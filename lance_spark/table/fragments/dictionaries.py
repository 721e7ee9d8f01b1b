"""Reads the dictionaries of a new table of version 0.1 from its data files, which must agree."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.file.v0_1.reader import LegacyFileReader
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths


def common_dictionaries(
    paths: TablePaths, fragments: Iterable[Fragment], schema: Schema
) -> dict[int, pa.Array]:
    """Read the dictionaries of new data files.

    Parameters
    ----------
    paths : TablePaths
    fragments : iterable of Fragment
        Fragments of one file of version 0.1 each.
    schema : Schema

    Returns
    -------
    dict of int to pyarrow.Array
        The dictionary values by field id.

    Raises
    ------
    InvalidInputError
        No files are given, or their dictionaries differ.
    """
    nodes = [node for node in schema.walk() if node.logical_type.startswith("dict:")]
    values: dict[int, pa.Array] = {}
    for fragment in fragments:
        for file in fragment.files:
            reader = LegacyFileReader.open(paths.open_data_file(file), file.fields)
            try:
                for node in nodes:
                    result = reader.dictionary(node)
                    if not values.setdefault(node.id, result).equals(result):
                        raise InvalidInputError(
                            f"column {node.name!r} has different dictionaries in two data files, "
                            "and files of version 0.1 "
                            "share one; give all rows the same dictionary, or use data storage "
                            "version 2.2"
                        )
            finally:
                reader.close()
    if not values:
        raise InvalidInputError(
            f"column {nodes[0].name!r}: a table of version 0.1 takes its dictionary from the first "
            "rows, and there are none; "
            "use data storage version 2.2"
        )
    return values
