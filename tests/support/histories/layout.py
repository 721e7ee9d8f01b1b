"""Changes of settings, data files and indexes in random histories: the calls of both clients, and
the effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
from lance.file import LanceFileWriter

import lance_spark
from lance_spark.indexes.registry import CREATED
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.operations.columns import DataReplacement
from tests.support.histories.common import (
    SIMPLE,
    Common,
    Operations,
)
from tests.support.histories.model import (
    FLOATS,
    INTEGERS,
    KEY,
    LABELS,
    STRINGS,
    VECTOR,
    Change,
    KnownBugError,
    State,
)

INDEXES: dict[str, tuple[pa.DataType, ...]] = {
    "BTREE": (*INTEGERS, *FLOATS, *STRINGS, pa.date32()),
    "BITMAP": (*INTEGERS, *STRINGS),
    "LABEL_LIST": (LABELS,),
    "NGRAM": (pa.string(),),
    "ZONEMAP": INTEGERS,
    "BLOOMFILTER": (*INTEGERS, pa.string()),
    "INVERTED": (pa.string(),),
    "IVF_FLAT": (VECTOR,),
    "IVF_SQ": (VECTOR,),
    "IVF_PQ": (VECTOR,),
    "IVF_HNSW_FLAT": (VECTOR,),
}

#: Codes of PQ do not tell vectors apart: in tables of fewer rows, all are measured by their vectors.
MOST_CODES = 500
VECTOR_TYPES = [name for name in INDEXES if name.startswith("IVF")]


def _with(existing: Mapping[str, str], values: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**existing, **values}
    return {key: value for key, value in merged.items() if value is not None}


def config(common: Common, state: State, random: Random) -> Change:
    key = random.choice(["k1", "k2", "k3"])
    if random.random() < 0.25 and not any("cleanup" in name for name in state.config):
        # From now on, commits remove old versions.
        values = {
            "lance.auto_cleanup.interval": str(random.choice([1, 3])),
            "lance.auto_cleanup.older_than": "0s",
        }
        if random.random() < 0.5:
            values = {**values, "lance.auto_cleanup.retain_versions": "4"}
    else:
        values = {key: str(random.randrange(1000))}
    if key in state.config and random.random() < 0.4:
        return Change(
            f"delete config {key}",
            lambda dataset: dataset.delete_config_keys([key]),
            lambda dataset: dataset.delete_config_keys([key]),
            lambda _, current: replace(current, config=_with(current.config, {key: None})),
        )
    return Change(
        f"set config {values}",
        lambda dataset: dataset.update_config(values),
        lambda dataset: dataset.update_config(values),
        lambda _, current: replace(current, config=_with(current.config, values)),
    )


def metadata(common: Common, state: State, random: Random) -> Change:
    values = {random.choice(["m1", "m2"]): str(random.randrange(1000))}
    instead = random.random() < 0.3
    return Change(
        f"set metadata {values}{' in place of all' if instead else ''}",
        lambda dataset: dataset.update_metadata(values, replace=instead),
        lambda dataset: dataset.update_metadata(values, replace=instead),
        lambda _, current: replace(
            current, metadata=_with({} if instead else current.metadata, values)
        ),
    )


def schema_metadata(common: Common, state: State, random: Random) -> Change:
    """Set metadata of the schema or of a field. The test checks only that both clients read the
    same.
    """
    values = {random.choice(["s1", "s2"]): str(random.randrange(1000))}
    name = random.choice([KEY.name, *(column.name for column in state.columns)])
    if random.random() < 0.5:
        return Change(
            f"set schema metadata {values}",
            lambda dataset: dataset.update_schema_metadata(values),
            lambda dataset: dataset.update_schema_metadata(values),
            lambda _, current: current,
        )
    return Change(
        f"set metadata {values} of {name}",
        lambda dataset: dataset.update_field_metadata({name: values}),
        lambda dataset: dataset.update_field_metadata({name: values}),
        lambda _, current: current,
    )


def replace_data(common: Common, state: State, random: Random) -> Change | None:
    """Write a new file for one column of a fragment, and commit it by a user operation."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not columns or not state.rows:
        return None
    column, key = random.choice(columns), random.choice(list(state.rows))
    seed = random.random()
    result: dict[int, Any] = {}

    def file_of(dataset: lance.LanceDataset) -> tuple[int, lance.fragment.DataFile]:
        for fragment in dataset.get_fragments():
            rows = fragment.to_table(columns=["key"], with_row_address=True)
            keys = rows["key"].to_pylist()
            if key in keys:
                break
        offsets = [address & 0xFFFFFFFF for address in rows["_rowaddr"].to_pylist()]
        physical = fragment.physical_rows
        values = Random(seed)
        new = [common.value(column, values) for _ in range(physical)]
        result.update({row_key: new[offset] for row_key, offset in zip(keys, offsets, strict=True)})
        table = pa.table([pa.array(new, column.type)], schema=pa.schema([column.field]))
        file = write_file(common, dataset, table, column.name, f"replaced-{seed}.lance")
        return fragment.fragment_id, file

    def theirs(dataset: lance.LanceDataset) -> None:
        group = Operations.DataReplacementGroup(*file_of(dataset))
        operation = Operations.DataReplacement([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def ours(dataset: lance_spark.Dataset) -> None:
        twin = lance.dataset(dataset.uri, version=dataset.version)
        number, file = file_of(twin)
        new = DataFile(
            file.path,
            tuple(file.fields),
            tuple(file.column_indices),
            file.file_major_version,
            file.file_minor_version,
            file.file_size_bytes,
        )
        type(dataset).commit(dataset, DataReplacement(((number, new),)), dataset.version)

    def effect(_: State, current: State) -> State:
        return current.with_rows(
            {
                row_key: row.with_values({column.number: result[row_key]})
                if row_key in result
                else row
                for row_key, row in current.rows.items()
            }
        )

    return Change(
        f"replace column {column.name} of the fragment of key {key}", ours, theirs, effect
    )


def create_index(common: Common, state: State, random: Random) -> Change | None:
    children = [
        (f"{column.name}.{child.name}", child.type)
        for column in state.columns
        if pa.types.is_struct(column.type)
        for child in column.type
        if child.type in (*INTEGERS, *STRINGS)
    ]
    paths = [(column.name, column.type) for column in state.columns]
    candidates = [
        (path, index_type)
        for path, data_type in (*paths, *children, (KEY.name, KEY.type), (KEY.name, KEY.type))
        for index_type, types in INDEXES.items()
        if data_type in types
    ]
    if not candidates or not state.rows:
        return None
    path, index_type = random.choice(candidates)
    if index_type.startswith("IVF"):
        return create_vector_index(path, index_type, state, random)

    def theirs(dataset: lance.LanceDataset) -> None:
        dataset.create_scalar_index(path, index_type)

    def ours(dataset: lance_spark.Dataset) -> lance_spark.Dataset:
        return dataset.create_scalar_index(path, index_type)

    return Change(
        f"index {index_type} on {path}",
        ours if index_type in CREATED else None,
        theirs,
        lambda _, current: current,
        commits=False,
    )


def create_vector_index(path: str, index_type: str, state: State, random: Random) -> Change:
    if index_type == "IVF_PQ" and len(state.rows) > MOST_CODES:
        index_type = "IVF_SQ"
    options: dict[str, Any] = {
        "num_partitions": random.choice([1, 1, 2, 3]),
        "metric": random.choice(["l2", "l2", "l2", "cosine"]),
    }
    if index_type == "IVF_PQ":
        options |= {"num_sub_vectors": 2, "num_bits": 4}

    def create(dataset: Any) -> Any:
        return dataset.create_index(path, index_type, replace=True, **options)

    return Change(
        f"index {index_type} on {path}, {options}",
        create,
        create,
        lambda _, current: current,
        commits=False,
        refusal="not enough rows",
    )


def optimize_indices(common: Common, state: State, random: Random) -> Change:
    # With 0, a segment for a fragment whose column was replaced brings back the old values: pylance
    # masks segments by the coverage of all segments.
    options: dict[str, Any] = random.choice(
        [{}, {"num_indices_to_merge": 1}, {"num_indices_to_merge": 9}]
    )

    def theirs(dataset: Any) -> None:
        try:
            dataset.optimize.optimize_indices(**options)
        except OSError as error:
            if "No column with name" in str(error):
                raise KnownBugError("indexes on children of structs are not optimized") from error
            if "KMeans cannot train 1 centroids with 0 vectors" in str(error):
                raise KnownBugError("an index without vectors is not optimized") from error
            raise

    def ours(dataset: lance_spark.Dataset) -> lance_spark.Dataset:
        return dataset.optimize_indices(**options)

    return Change(
        f"optimize indices {options}",
        ours,
        theirs,
        lambda _, current: current,
        commits=False,
    )


def overlay(common: Common, state: State, random: Random) -> Change | None:
    """Write new values for single cells with pylance, in which overlays are experimental."""
    columns = state.of_type(*SIMPLE, VECTOR)
    if not common.overlays or not columns or not state.rows:
        return None
    column, key = random.choice(columns), random.choice(list(state.rows))
    near = list(state.rows)[max(list(state.rows).index(key) - 2, 0) :][:5]
    values = {item: common.value(column, random) for item in near}
    name = f"overlay-{random.random()}.lance"
    result: dict[int, Any] = {}

    def theirs(dataset: lance.LanceDataset) -> None:
        for fragment in dataset.get_fragments():
            rows = fragment.to_table(columns=["key"], with_row_address=True)
            keys = rows["key"].to_pylist()
            if key in keys:
                break
        offsets = {
            row_key: address & 0xFFFFFFFF
            for row_key, address in zip(keys, rows["_rowaddr"].to_pylist(), strict=True)
            if row_key in values
        }
        ordered = sorted(offsets, key=lambda row_key: offsets[row_key])
        result.update({item: values[item] for item in ordered})
        field = pa.field(column.name, column.type)
        array = pa.array([values[item] for item in ordered], column.type)
        table = pa.table([array], schema=pa.schema([field]))
        file = write_file(common, dataset, table, column.name, name)
        overlay = Operations.DataOverlayFile(file, sorted(offsets.values()))
        group = Operations.DataOverlayGroup(fragment.fragment_id, [overlay])
        operation = Operations.DataOverlay([group])
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version)

    def effect(_: State, current: State) -> State:
        return current.with_rows(
            {
                row_key: row.with_values({column.number: result[row_key]})
                if row_key in result
                else row
                for row_key, row in current.rows.items()
            }
        )

    return Change(f"overlay column {column.name} of keys {near}", None, theirs, effect)


def write_file(
    common: Common, dataset: lance.LanceDataset, table: pa.Table, column: str, name: str
) -> lance.fragment.DataFile:
    """Write a data file of one column into a table."""
    path = Path(dataset.uri) / "data" / name
    path.parent.mkdir(exist_ok=True)
    with LanceFileWriter(str(path), table.schema, version=common.data_version) as writer:
        writer.write_batch(table)
    (field,) = (field.id() for field in dataset.lance_schema.fields() if field.name() == column)
    major, minor = map(int, common.data_version.split("."))
    return lance.fragment.DataFile(name, [field], [0], major, minor, path.stat().st_size)


def drop_index(common: Common, state: State, random: Random) -> Change:
    chosen = random.random()

    def drop(dataset: Any) -> None:
        names = sorted(
            {
                index["name"]
                for index in dataset.list_indices()
                if not index["name"].startswith("__")
            }
        )
        if names:
            dataset.drop_index(names[int(chosen * len(names))])

    return Change("drop an index", drop, drop, lambda _, current: current, commits=False)
