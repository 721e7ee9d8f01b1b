"""Columns: added, dropped, renamed, cast; metadata and configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]


def made(client: Client, path: Path) -> Any:
    rows = pa.table(
        {
            "a": pa.array([1, 2, 3], pa.int32()),
            "b": ["x", None, "z"],
            "s": [{"x": 1, "y": "p"}, {"x": 2, "y": "q"}, None],
            "v": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
        }
    )
    client.write(rows, path, max_rows_per_file=2)
    return client.open(path)


def changed(*changes: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        for change in changes:
            change(client.open(path))
        newest = client.open(path)
        newest.validate()
        return newest.schema, newest.to_table(), newest.version

    return run


def facts(fact: Callable[[Any], Any], *changes: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        for change in changes:
            change(client.open(path))
        return fact(client.open(path))

    return run


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow.compute as pc

    return pa.RecordBatch.from_arrays([pc.multiply(rows["a"], 2)], ["twice"])


def alter(**change: Any) -> Callable[[Any], Any]:
    return lambda d: d.alter_columns(change)


RUNS: dict[str, Run] = {
    "add nulls": changed(lambda d: d.add_columns(pa.field("n", pa.int64()))),
    "add several nulls": changed(
        lambda d: d.add_columns([pa.field("n", pa.int64()), pa.field("m", pa.string())])
    ),
    "add a schema": changed(lambda d: d.add_columns(pa.schema([pa.field("n", pa.float32())]))),
    "add nulls that must not be null": changed(
        lambda d: d.add_columns(pa.field("n", pa.int64(), nullable=False))
    ),
    "add an existing column": changed(lambda d: d.add_columns(pa.field("a", pa.int64()))),
    "add by a function": changed(lambda d: d.add_columns(doubled, read_columns=["a"])),
    "add by an expression": changed(lambda d: d.add_columns({"n": "a + 1"})),
    "add, then append": changed(
        lambda d: d.add_columns(pa.field("n", pa.int64())),
        lambda d: d.insert(
            pa.table({"a": pa.array([9], pa.int32()), "b": ["n"], "n": [5]})
            .append_column("s", pa.array([None], d.schema.field("s").type))
            .append_column("v", pa.array([[0.0, 0.0]], d.schema.field("v").type))
            .select(["a", "b", "s", "v", "n"])
        ),
    ),
    "drop": changed(lambda d: d.drop_columns(["b"])),
    "drop several": changed(lambda d: d.drop_columns(["b", "v"])),
    "drop a child": changed(lambda d: d.drop_columns(["s.x"])),
    "drop all children": changed(lambda d: d.drop_columns(["s.x", "s.y"])),
    "drop all": changed(lambda d: d.drop_columns(["a", "b", "s", "v"])),
    "drop an unknown column": changed(lambda d: d.drop_columns(["q"])),
    "drop nothing": changed(lambda d: d.drop_columns([])),
    "drop, then add again": changed(
        lambda d: d.drop_columns(["b"]), lambda d: d.add_columns(pa.field("b", pa.int64()))
    ),
    "rename": changed(alter(path="a", name="z")),
    "rename a child": changed(alter(path="s.x", name="z")),
    "rename to an existing name": changed(alter(path="a", name="b")),
    "rename to a name with a dot": changed(alter(path="a", name="a.b")),
    "rename an unknown column": changed(alter(path="q", name="z")),
    "rename and drop": changed(alter(path="a", name="z"), lambda d: d.drop_columns(["z"])),
    "nullable": changed(alter(path="a", nullable=True)),
    "not nullable": changed(alter(path="a", nullable=False)),
    "not nullable with nulls": changed(alter(path="b", nullable=False)),
    "widen": changed(alter(path="a", data_type=pa.int64())),
    "narrow": changed(alter(path="a", data_type=pa.int8())),
    "integers to floats": changed(alter(path="a", data_type=pa.float64())),
    "text to large text": changed(alter(path="b", data_type=pa.large_string())),
    "text to integers": changed(alter(path="b", data_type=pa.int64())),
    "vectors to half": changed(alter(path="v", data_type=pa.list_(pa.float16(), 2))),
    "a child's type": changed(alter(path="s.x", data_type=pa.int32())),
    "rename and widen": changed(alter(path="a", name="z", data_type=pa.int64())),
    "alteration without a change": changed(alter(path="a")),
    "configuration": facts(lambda d: dict(d.config()), lambda d: d.update_config({"k": "v"})),
    "configuration, delete": facts(
        lambda d: "k" in d.config(),
        lambda d: d.update_config({"k": "v"}),
        lambda d: d.delete_config_keys(["k"]),
    ),
    "schema metadata": facts(
        lambda d: d.schema.metadata, lambda d: d.replace_schema_metadata({"k": "v"})
    ),
    "schema metadata, update": facts(
        lambda d: d.schema.metadata, lambda d: d.update_schema_metadata({"k": "v"})
    ),
    "field metadata": facts(
        lambda d: d.schema.field("a").metadata,
        lambda d: d.replace_field_metadata("a", {"k": "v"}),
    ),
    "metadata of an unknown field": facts(
        lambda d: d.schema, lambda d: d.replace_field_metadata("q", {"k": "v"})
    ),
    "table metadata": facts(lambda d: d.metadata, lambda d: d.update_metadata({"k": "v"})),
}
CASES = [Case("evolution", name, run) for name, run in RUNS.items()]
