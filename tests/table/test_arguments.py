"""Wrong arguments of public calls: errors name table and argument; no file is written."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.dataset.dataset import Dataset
from lance_spark.dataset.refs import Branches, Tags
from lance_spark.errors import LanceError
from tests.support.tables.damaged import files_below
from tests.support.tables.pylance_written import new_table, rows

#: Values of wrong types, by the type in the signature.
WRONG_TYPES: dict[str, list[Any]] = {
    "int": ["x", 1.5, True],
    "float": ["x"],
    "str": [3],
    "bool": ["secret"],
    "Mapping": [3, ["secret"]],
    "Sequence[str]": ["id", 3, ["id", 3]],
    "Sequence": [3],
    "Collection": [3, "id"],
    "Iterable": [3, "id"],
}
#: Arguments that calls need besides the wrong argument.
NEEDED: dict[str, dict[str, Any]] = {
    "alter_columns": {},
    "branches.delete": {"branch": "b"},
    "branches.replace_metadata": {"branch": "b", "metadata": {}},
    "add_bases": {"new_bases": []},
    "add_columns": {"transforms": {"new": 1}},
    "checkout_version": {"version": 1},
    "create_branch": {"branch": "c"},
    "deep_clone": {"target_path": "memory://deep"},
    "delete": {"filters": [("id", "==", 1)]},
    "delete_config_keys": {"keys": ["a"]},
    "drop_columns": {"columns": ["word"]},
    "drop_index": {"name": "id_idx"},
    "move_fragments": {"base": "b"},
    "read_transaction": {"version": 1},
    "replace_field_metadata": {"field_name": "id", "new_metadata": {}},
    "replace_schema_metadata": {"new_metadata": {}},
    "repoint_base": {"base": 1, "path": "/b"},
    "shallow_clone": {"target_path": "memory://shallow"},
    "tags.create": {"tag": "u"},
    "tags.delete": {"tag": "t"},
    "tags.get_version": {"tag": "t"},
    "tags.replace_metadata": {"tag": "t", "metadata": {}},
    "tags.update": {"tag": "t"},
    "take": {"indices": [0]},
    "take_blobs": {"blob_column": "id"},
    "take_rows": {"row_ids": [0]},
    "update": {"updates": {"id": 1}},
    "update_config": {"values": {"a": "b"}},
    "update_field_metadata": {"field_updates": {"id": {"a": "b"}}},
    "update_metadata": {"values": {"a": "b"}},
    "update_schema_metadata": {"values": {"a": "b"}},
}


def methods() -> dict[str, Callable[..., Any]]:
    """All public methods of a dataset, its tags and its branches."""
    result = {}
    for prefix, cls in (("", Dataset), ("tags.", Tags), ("branches.", Branches)):
        for name, member in inspect.getmembers(cls, inspect.isfunction):
            if not name.startswith("_"):
                result[prefix + name] = member
    return result


def kind_of(annotation: str) -> str | None:
    plain = annotation.removesuffix(" | None")
    if plain in WRONG_TYPES:
        return plain
    head = plain.partition("[")[0]
    return head if head in WRONG_TYPES and " | " not in plain.partition("]")[2] else None


def typed_arguments() -> list[Any]:
    cases = []
    for name, method in methods().items():
        for parameter in inspect.signature(method).parameters.values():
            type_kind = kind_of(str(parameter.annotation))
            if type_kind is not None and parameter.kind is not parameter.VAR_POSITIONAL:
                cases += [(name, parameter.name, value) for value in WRONG_TYPES[type_kind]]
    return cases


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("arguments") / "t"
    dataset = new_table(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.tags.create("t", 1)
    dataset.create_branch("b", 1)
    return str(path)


def exhausted(result: object) -> None:
    if inspect.isgenerator(result):
        list(result)


def complaint(uri: str, call: Callable[[], object], word: str) -> str | None:
    """Return what is wrong with the error of a call; None if it is as expected."""
    before = files_below(Path(uri))
    try:
        exhausted(call())
    except LanceError as error:
        message = str(error)
    except Exception as error:
        return f"raised {error!r}"
    else:
        return "was accepted"
    if uri not in message or word not in message or "secret" in message.replace("'secret'", ""):
        return f"says {message!r}"
    return None if files_below(Path(uri)) == before else "left files behind"


def test_methods_refuse_wrong_types(uri: str) -> None:
    cases = typed_arguments()
    assert len(cases) > 250
    dataset = lance_spark.open_dataset(uri)
    wrong = {}
    places = {"": dataset, "tags": dataset.tags, "branches": dataset.branches}
    for name, argument, value in cases:
        place, _, method = name.rpartition(".")
        arguments = {**NEEDED.get(name, {}), argument: value}

        def call(place: str = place, method: str = method, arguments: Any = arguments) -> object:
            return getattr(places[place], method)(**arguments)

        wrong[f"{name}({argument}={value!r})"] = complaint(uri, call, argument)
    assert {call: problem for call, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize("function", [lance_spark.open_dataset, lance_spark.write_dataset])
def test_functions_refuse_wrong_types(uri: str, function: Callable[..., Any]) -> None:
    needed = {"data": rows(0), "uri": uri, "mode": "append"}
    parameters = inspect.signature(function).parameters
    needed = {name: value for name, value in needed.items() if name in parameters}
    wrong = {}
    for parameter in parameters.values():
        type_kind = kind_of(str(parameter.annotation))
        for value in WRONG_TYPES[type_kind] if type_kind is not None else ():
            arguments = {**needed, parameter.name: value}
            problem = complaint(
                uri, lambda arguments=arguments: function(**arguments), parameter.name
            )
            wrong[f"{parameter.name}={value!r}"] = problem
    assert len(wrong) > 8
    assert {call: problem for call, problem in wrong.items() if problem} == {}


Opened = lance_spark.Dataset
DAY = datetime.timedelta(days=1)
#: A call, and a word that its error must contain.
VALUES: list[tuple[Callable[[Opened], object], str]] = [
    (lambda t: t.checkout_version(77), "version 77"),
    (lambda t: t.checkout_version("none"), "tag 'none'"),
    (lambda t: t.checkout_version(("none", None)), "branch 'none'"),
    (lambda t: t.checkout_version(("b", 1, 2)), "('b', 1, 2)"),  # type: ignore[arg-type]
    (lambda t: t.read_transaction(77), "version 77"),
    (lambda t: t.get_transactions(-1), "recent_transactions"),
    (lambda t: t.with_target_bases(["x"], target_all_bases=True), "target_all_bases"),
    (lambda t: t.with_target_bases(["x"]).update({"id": 1}), "base path 'x'"),
    (lambda t: t.to_table(["x"]), "'x'"),
    (lambda t: t.to_table(["id", "id"]), "'id'"),
    (lambda t: t.to_table(filters=[("id", "~", 1)]), "'~'"),
    (lambda t: t.to_table(filters=[3]), "filter"),  # type: ignore[list-item]
    (lambda t: t.to_table(filter="id >"), "filter"),
    (lambda t: t.to_table(filter=3), "filter"),  # type: ignore[arg-type]
    (lambda t: t.to_table(blob_handling="x"), "blob_handling"),
    (lambda t: list(t.to_batches(batch_size=0)), "batch_size"),
    (lambda t: t.plan(rows_per_task=0), "rows_per_task"),
    (lambda t: t.plan(min_partitions=0), "min_partitions"),
    (lambda t: t.plan(fragment_ids=[9]), "fragment 9"),
    (lambda t: t.explain(rows_per_task=0), "rows_per_task"),
    (lambda t: t.take([99]), "99"),
    (lambda t: t.take(["a"]), "positions"),  # type: ignore[list-item]
    (lambda t: t.take_rows([-1]), "row ids"),
    (lambda t: t.take_blobs("id", ids=[1]), "'id'"),
    (lambda t: t.tags.create("a b"), "'a b'"),
    (lambda t: t.tags.create("t"), "'t'"),
    (lambda t: t.tags.create("u", 77), "version 77"),
    (lambda t: t.tags.create("u", "none"), "'none'"),
    (lambda t: t.tags.update("none"), "'none'"),
    (lambda t: t.tags.update("t", 77), "version 77"),
    (lambda t: t.tags.delete("none"), "'none'"),
    (lambda t: t.tags.delete(".."), "'..'"),
    (lambda t: t.tags.get_version("a/b"), "'a/b'"),
    (lambda t: t.tags.list_ordered("x"), "order"),
    (lambda t: t.tags.replace_metadata("t", {"a": 3}), "metadata"),  # type: ignore[dict-item]
    (lambda t: t.branches.list_ordered("x"), "order"),
    (lambda t: t.branches.delete("main"), "'main'"),
    (lambda t: t.branches.delete("none"), "'none'"),
    (lambda t: t.branches.replace_metadata("b", {"a": 3}), "metadata"),  # type: ignore[dict-item]
    (lambda t: t.create_branch("a b"), "'a b'"),
    (lambda t: t.create_branch("c", 77), "version 77"),
    (lambda t: t.shallow_clone(t.uri), "already"),
    (lambda t: t.shallow_clone(3), "path"),  # type: ignore[arg-type]
    (lambda t: t.deep_clone("nosuch://x"), "'nosuch'"),
    (lambda t: t.delete([("x", "==", 1)]), "'x'"),
    (lambda t: t.delete(ids=["a"]), "row ids"),  # type: ignore[list-item]
    (lambda t: t.delete(addresses=[-1]), "row addresses"),
    (lambda t: t.delete(indices=[99]), "99"),
    (lambda t: t.delete([("id", "==", 1)], conflict_retries=-1), "conflict_retries"),
    (lambda t: t.delete([("id", "==", 1)], max_retries=-1), "max_retries"),
    (
        lambda t: t.delete([("id", "==", 1)], transaction_properties={"a": 3}),  # type: ignore[dict-item]
        "transaction property 'a'",
    ),
    (lambda t: t.update({}), "update"),
    (lambda t: t.update({"x": 1}), "'x'"),
    (lambda t: t.update({"id": "a"}), "'a'"),
    (lambda t: t.update({"id": 1}, mode="x"), "mode"),  # type: ignore[arg-type]
    (lambda t: t.update({"id": 1}, max_retries=-1), "max_retries"),
    (lambda t: t.add_columns({}), "transforms"),
    (lambda t: t.add_columns(3), "transforms"),
    (lambda t: t.add_columns({"id": 1}), "'id'"),
    (lambda t: t.add_columns({"n": 1}, batch_size=0), "batch_size"),
    (lambda t: t.add_columns(lambda b: b, output_schema=3), "output_schema"),  # type: ignore[arg-type]
    (lambda t: t.drop_columns(["x"]), "'x'"),
    (lambda t: t.alter_columns(), "alteration"),
    (lambda t: t.alter_columns({"path": "id", "name": "word"}), "'word'"),
    (lambda t: t.update_config({"a": 3}), "config"),  # type: ignore[dict-item]
    (lambda t: t.update_config(3), "config"),  # type: ignore[arg-type]
    (lambda t: t.update_field_metadata({"x": {}}), "'x'"),
    (lambda t: t.add_bases([3]), "new_bases"),  # type: ignore[list-item]
    (lambda t: t.repoint_base("x", "/y"), "'x'"),
    (lambda t: t.restore(max_retries=-1), "max_retries"),
    (lambda t: t.compact_files(target_rows_per_fragment=0), "target_rows_per_fragment"),
    (lambda t: t.compact_files(num_threads=0), "num_threads"),
    (lambda t: t.compact_files(max_retries=-1), "max_retries"),
    (lambda t: t.move_fragments("x"), "'x'"),
    (lambda t: t.move_fragments(t.uri, [99]), "99"),
    (lambda t: t.drop_index("x"), "'x'"),
    (lambda t: t.cleanup_old_versions(-DAY), "older_than"),
    (lambda t: t.cleanup_old_versions(3), "older_than"),  # type: ignore[arg-type]
    (lambda t: t.cleanup_old_versions(retain_versions=0), "retain_versions"),
    (lambda t: t.cleanup_old_versions(versions=[]), "versions"),
    (lambda t: t.compact_files(excluded_fragment_ids=[0, 99]), "no fragment 99"),
    (lambda t: t.cleanup_old_versions(DAY, delete_rate_limit=0), "delete_rate_limit"),
    (lambda t: t.cleanup_old_versions(DAY, delete_concurrency=0), "delete_concurrency"),
    (lambda t: Dataset.commit(t, 3), "operation"),  # type: ignore[arg-type]
]


def test_methods_refuse_wrong_values(uri: str) -> None:
    wrong = {
        (number, word): complaint(uri, lambda call=call: call(lance_spark.open_dataset(uri)), word)
        for number, (call, word) in enumerate(VALUES)
    }
    assert {call: problem for call, problem in wrong.items() if problem} == {}


#: Arguments of `open_dataset`, and a word that the error must contain.
OPENS: list[tuple[dict[str, Any], str]] = [
    ({"version": 77}, "version 77"),
    ({"branch": "a b"}, "'a b'"),
    ({"tag": "a/b"}, "'a/b'"),
    ({"version": 1, "tag": "t"}, "version and tag"),
    ({"timestamp": "yesterday"}, "timestamp"),
    ({"timestamp": datetime.datetime(1, 1, 1)}, "timestamp"),
    ({"manifest_store": "no_module:x"}, "manifest_store"),
    ({"manifest_store": 5}, "manifest_store"),
    ({"base_store_params": {"x": 3}}, "base_store_params"),
]
WRITES: list[tuple[dict[str, Any], str]] = [
    ({"mode": "x"}, "mode"),
    ({"data": 3}, "data"),
    ({"data": pa.table({"x": [1]})}, "'x'"),
    ({"schema": 3}, "schema"),
    ({"schema": pa.schema([("x", pa.int8())])}, "schema"),
    ({"mode": "overwrite", "data_storage_version": "9.9"}, "data storage version"),
    ({"data_storage_version": "2.0"}, "data storage version"),
    ({"max_rows_per_file": 0}, "max_rows_per_file"),
    ({"max_bytes_per_file": 0}, "max_bytes_per_file"),
    ({"external_blob_mode": "x"}, "external_blob_mode"),
    ({"blob_pack_file_size_threshold": -1}, "blob_pack_file_size_threshold"),
    ({"commit_retries": -1}, "commit_retries"),
    ({"transaction_properties": {"a": 3}}, "transaction property 'a'"),
    ({"txn_app_id": "a"}, "txn_version"),
    ({"txn_app_id": "a", "txn_version": -1}, "txn"),
    ({"branch": "none"}, "'none'"),
    ({"initial_bases": ["/x"]}, "initial_bases"),
    ({"target_bases": ["x"]}, "'x'"),
    ({"target_bases": ["x"], "target_all_bases": True}, "target_all_bases"),
    ({"base_store_params": {"s3://other/base": {"region": "a"}}}, "s3://other/base"),
]


def test_functions_refuse_wrong_values(uri: str) -> None:
    wrong = {}
    for options, word in OPENS:
        call = partial(lance_spark.open_dataset, uri, **options)
        wrong[str(options)] = complaint(uri, call, word)
    for options, word in WRITES:
        arguments = {"data": rows(0), "uri": uri, "mode": "append", **options}
        wrong[str(options)] = complaint(uri, partial(lance_spark.write_dataset, **arguments), word)
    assert {call: problem for call, problem in wrong.items() if problem} == {}


@pytest.mark.parametrize("path", [3, None, "", b"x"])
def test_invalid_paths_are_refused(
    path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: lance_spark.open_dataset(path),
        lambda: lance_spark.write_dataset(rows(0), path),
    ):
        with pytest.raises(LanceError, match="path"):
            call()
    assert files_below(tmp_path) == set()


def test_valid_arguments_are_accepted(tmp_path: Path) -> None:
    # Numbers of numpy, paths, tuples and arrays are valid values.
    ours = lance_spark.write_dataset(rows(0, 6), tmp_path, max_rows_per_file=np.int64(3))  # type: ignore[arg-type]
    assert ours.take(np.array([4]), ("id",))["id"].to_pylist() == [4]
    assert ours.take(pa.array([4]))["id"].to_pylist() == [4]
    assert lance_spark.open_dataset(tmp_path, np.uint64(1)).version == 1  # type: ignore[arg-type]
    assert lance.dataset(str(tmp_path)).count_rows() == 6
