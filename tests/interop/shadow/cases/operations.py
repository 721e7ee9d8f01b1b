"""Operations of clones, overlays and rewrites, compactions in steps, and sessions."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table({"a": pa.array(range(12), pa.int64()), "b": [f"x{i}" for i in range(12)]})
ALLOWED = "LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"


def made(client: Client, path: Path, **options: Any) -> Any:
    client.write(ROWS, path, max_rows_per_file=4, **options)
    return client.open(path)


# Clones


def clone(*arguments: Any, read_version: int | None = 0, onto: str = "clone.lance") -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        dataset.create_branch("dev")
        dataset.delete("a = 3")
        source = str(path)
        shallow, name, version, branch = arguments
        operation = client.Operation.Clone(shallow, name, version, source, branch)
        client.commit(str(path.parent / onto), operation, read_version)
        cloned = client.open(path.parent / onto)
        made_by = cloned.get_transactions()[0].operation
        facts = [made_by.is_shallow, made_by.ref_version, made_by.branch_name]
        return cloned.to_table(), cloned.version, facts

    return run


def is_clone(client: Client, path: Path) -> Any:
    cloned = made(client, path).shallow_clone(str(path.parent / "c.lance"), 1)
    operation = cloned.get_transactions()[0].operation
    return isinstance(operation, client.Operation.Clone), operation.ref_version


# Overlays


@contextmanager
def allowed() -> Iterator[None]:
    """Let pylance open tables with overlays."""
    before = os.environ.get(ALLOWED)
    os.environ[ALLOWED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ALLOWED]
        else:
            os.environ[ALLOWED] = before


def overlay_file(client: Client, path: Path, values: pa.Table, offsets: Any) -> Any:
    name = f"{uuid.uuid4().hex}.lance"
    file = path / "data" / name
    with client.files.LanceFileWriter(str(file), values.schema, version="2.2") as writer:
        for batch in values.to_batches():
            writer.write_batch(batch)
    fields = [["a", "b"].index(column) for column in values.column_names]
    described = client.DataFile(name, tuple(fields), tuple(range(len(fields))), 2, 2)
    return client.Operation.DataOverlayFile(described, offsets)


def commit_overlays(client: Client, path: Path, *groups: tuple[int, Any]) -> Any:
    operation = client.Operation.DataOverlay(
        [client.Operation.DataOverlayGroup(number, [file]) for number, file in groups]
    )
    client.commit(str(path), operation, client.open(path).version)
    return client.open(path)


def overlaid(
    *parts: tuple[int, pa.Table, Any], fact: Callable[[Any], Any] = lambda d: d.to_table()
) -> Run:
    def run(client: Client, path: Path) -> Any:
        with allowed():
            made(client, path)
            groups = [
                (number, overlay_file(client, path, values, offsets))
                for number, values, offsets in parts
            ]
            return fact(commit_overlays(client, path, *groups))

    return run


def numbers(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def overlay_facts(dataset: Any) -> Any:
    overlays = dataset.get_fragments()[0].metadata.overlays
    operation = dataset.get_transactions()[0].operation
    offsets = [
        [list(rows) for rows in overlay.offsets]
        if isinstance(overlay.offsets, list)
        else list(overlay.offsets)
        for overlay in overlays
    ]
    return offsets, [overlay.committed_version for overlay in overlays], len(operation.groups)


def overlay_json(dataset: Any) -> Any:
    form = dataset.get_fragments()[0].metadata.to_json()
    return [{**overlay, "data_file": sorted(overlay["data_file"])} for overlay in form["overlays"]]


def overlay_round_trip(client: Client, path: Path) -> Any:
    """Delete a row of a fragment with an overlay, by its JSON form."""
    with allowed():
        made(client, path)
        dataset = commit_overlays(
            client, path, (0, overlay_file(client, path, numbers(70, 71), [0, 2]))
        )
        fragment = dataset.get_fragment(0).delete("a = 70")
        fragment = client.FragmentMetadata.from_json(json.dumps(fragment.to_json()))
        operation = client.Operation.Delete([fragment], [], "a = 70")
        client.commit(str(path), operation, dataset.version)
        return client.rows(path), len(client.open(path).get_fragments()[0].metadata.overlays)


BOTH = pa.table({"a": pa.array([50, 51], pa.int64()), "b": ["y", "z"]})


# Rewrites


def as_listed(client: Client, index: Any) -> Any:
    """Return a rewritten segment as a caller makes it."""
    if client.name == "pylance":
        return index
    details = index.details.index_details
    return client.Operation.RewrittenIndex(
        str(uuid.UUID(bytes=index.old_id)),
        str(uuid.UUID(bytes=index.new_id)),
        details.type_url,
        details.value,
        index.details.index_version,
    )


def rewritten(client: Client, path: Path) -> Any:
    """Commit the transaction of a compaction again, to a copy of the version before it."""
    dataset = made(client, path)
    dataset.create_scalar_index("a", "BTREE")
    client.open(path).optimize.compact_files()
    dataset = client.open(path)
    operation = dataset.get_transactions()[0].operation
    before = dataset.version - 1
    copy = path.parent / "copy.lance"
    shutil.copytree(path, copy)
    (copy / "_versions" / f"{2**64 - 1 - dataset.version}.manifest").unlink()
    again = client.Operation.Rewrite(
        [
            client.Operation.RewriteGroup(group.old_fragments, group.new_fragments)
            for group in operation.groups
        ],
        [as_listed(client, index) for index in operation.rewritten_indices],
    )
    client.commit(str(copy), again, before)
    dataset = client.open(copy)
    dataset.validate()
    return (
        isinstance(operation, client.Operation.Rewrite),
        len(operation.rewritten_indices),
        len(dataset.get_fragments()),
        dataset.to_table(filter="a in (2, 7, 11)"),
        [index["fragment_ids"] for index in dataset.list_indices()],
    )


# Compactions in steps


def compacted(
    options: dict[str, Any],
    change: Callable[[Any, list[Any]], Iterable[Any]] = lambda optimize, results: results,
    prepare: Callable[[Any], object] = lambda dataset: None,
    meanwhile: Callable[[Any], object] = lambda dataset: None,
    **made_with: Any,
) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path, **made_with)
        prepare(client.open(path))
        dataset = client.open(path)
        optimize = client.optimize
        plan = optimize.Compaction.plan(dataset, options)
        plan = optimize.CompactionPlan.from_json(plan.json())
        tasks = [optimize.CompactionTask.from_json(task.json()) for task in plan.tasks]
        results = [pickle.loads(pickle.dumps(task)).execute(dataset) for task in tasks]
        results = [optimize.RewriteResult.from_json(result.json()) for result in results]
        meanwhile(client.open(path))
        done = optimize.Compaction.commit(dataset, list(change(optimize, results)))
        metrics = done[1] if isinstance(done, tuple) else done
        newest = client.open(path)
        newest.validate()
        return (
            plan.num_tasks(),
            [[fragment.id for fragment in task.fragments] for task in tasks],
            [result.metrics.fragments_removed for result in results],
            metrics.fragments_removed,
            metrics.fragments_added,
            metrics.files_removed,
            metrics.files_added,
            newest.to_table(),
            [len(fragment.to_table()) for fragment in newest.get_fragments()],
        )

    return run


def executed(client: Client, path: Path) -> Any:
    dataset = made(client, path)
    done = client.optimize.Compaction.execute(dataset, {"target_rows_per_fragment": 6})
    metrics = done[1] if isinstance(done, tuple) else done
    return metrics.fragments_removed, metrics.fragments_added, client.rows(path)


# Files, sessions


def of_file(name: str | None, *, append: bool = False) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        stored = str(dataset.get_fragment(1).data_files()[0].path)
        fragment = client.Fragment.create_from_file(name or stored, dataset, 7)
        files = [(list(file.fields), list(file.column_indices)) for file in fragment.files]
        if append:
            client.commit(str(path), client.Operation.Append([fragment]), dataset.version)
            return client.rows(path)
        return fragment.id, fragment.physical_rows, fragment.num_deletions, files

    return run


def prewarmed(kind: str, name: str, **options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path).create_scalar_index("b", kind, name="own")
        return client.open(path).prewarm_index(name, **options)

    return run


def same_session(client: Client, path: Path) -> Any:
    dataset = made(client, path)
    session = dataset.session()
    other = client.open(path, session=session)
    sizes = (session.size_bytes() >= 0, session.index_cache_size_bytes() >= 0)
    return session.is_same_as(dataset.session()), session.is_same_as(other.session()), sizes


def kinds(client: Client, path: Path) -> Any:
    dataset = made(client, path)
    dataset.insert(ROWS)
    dataset.delete("a = 1")
    client.open(path).create_scalar_index("a", "BTREE")
    client.open(path).update_config({"k": "v"})
    operation = client.Operation
    names = (operation.Append, operation.Delete, operation.CreateIndex, operation.UpdateConfig)
    done = [change.operation for change in client.open(path).get_transactions(4)]
    return [[isinstance(change, name) for name in names] for change in done]


DELETED = {"prepare": lambda d: d.delete("a in (0, 9)")}
RUNS: dict[str, Run] = {
    "clone": clone(True, None, 1, None),
    "clone of an older version": clone(True, None, 1, None, read_version=1),
    "clone of a newer version": clone(True, None, 9, None),
    "deep clone": clone(False, None, 1, None),
    "clone without a read version": clone(True, None, 1, None, read_version=None),
    "clone onto a table": clone(True, None, 1, None, onto="t.lance"),
    "clone as a branch": clone(True, None, 1, "other"),
    "kind of a clone": is_clone,
    "kinds of operations": kinds,
    "overlay": overlaid((0, numbers(70, 71), [1, 3])),
    "overlays of two fragments": overlaid((0, numbers(70), [1]), (2, numbers(80), [0])),
    "overlay above an overlay": overlaid((1, numbers(70, 71), [1, 2]), (1, numbers(80), [2])),
    "overlay by unsorted offsets": overlaid((0, numbers(70, 71), [3, 1])),
    "overlay by a repeated offset": overlaid((0, numbers(70, 71), [1, 1])),
    "overlay by a negative offset": overlaid((0, numbers(70), [-1])),
    "overlay of two columns": overlaid((0, BOTH, [0, 2])),
    "overlay by offsets of each field": overlaid((0, BOTH, [[0, 2], [1, 3]])),
    "overlay by offsets of too few fields": overlaid((0, BOTH, [[0, 2]])),
    "overlay of a missing fragment": overlaid((9, numbers(70), [0])),
    "facts of overlays": overlaid((0, numbers(70, 71), [1, 3]), fact=overlay_facts),
    "facts of overlays by field": overlaid((0, BOTH, [[0, 2], [1, 3]]), fact=overlay_facts),
    "JSON of overlays": overlaid((0, numbers(70, 71), [1, 3]), fact=overlay_json),
    "JSON of overlays by field": overlaid((0, BOTH, [[0, 2], [1, 3]]), fact=overlay_json),
    "deletion beside an overlay": overlay_round_trip,
    "rewritten index": rewritten,
    "compaction in steps": compacted({"target_rows_per_fragment": 100}),
    "compaction in two tasks": compacted({"target_rows_per_fragment": 6}),
    "compaction without a task": compacted({"target_rows_per_fragment": 2}),
    "compaction of deleted rows": compacted({"target_rows_per_fragment": 100}, **DELETED),
    "compaction with an index": compacted(
        {}, prepare=lambda d: d.create_scalar_index("a", "BTREE")
    ),
    "compaction with row ids": compacted({}, **DELETED, enable_stable_row_ids=True),
    "compaction committed in part": compacted(
        {"target_rows_per_fragment": 4},
        lambda optimize, results: results[:1],
        prepare=lambda d: d.delete("a in (0, 9)"),
    ),
    "compaction without results": compacted({}, lambda optimize, results: []),
    "compaction of a result twice": compacted({}, lambda optimize, results: results * 2),
    "compaction beside an append": compacted({}, meanwhile=lambda d: d.insert(ROWS.slice(0, 2))),
    "compaction beside a deletion": compacted({}, meanwhile=lambda d: d.delete("a = 5")),
    "compaction by an unknown option": compacted({"rows": 1}),
    "compaction at once": executed,
    "fragment of a file": of_file(None),
    "fragment of a file, appended": of_file(None, append=True),
    "fragment of a missing file": of_file("x.lance"),
    "rows of a session": lambda client, path: (
        made(client, path).get_fragment(1).open_session().take([2, 0, 0])
    ),
    "row of a session out of range": lambda client, path: (
        made(client, path).get_fragment(1).open_session().take([9])
    ),
    "prewarmed": prewarmed("BTREE", "own"),
    "prewarmed bitmap": prewarmed("BITMAP", "own"),
    "prewarmed text": prewarmed("INVERTED", "own"),
    "prewarmed text with positions": prewarmed("INVERTED", "own", with_position=True),
    "prewarmed tree with positions": prewarmed("BTREE", "own", with_position=True),
    "prewarmed by an unknown name": prewarmed("BTREE", "other"),
    "prewarmed by an unknown segment": prewarmed(
        "BTREE", "own", index_segments=["00000000-0000-4000-8000-000000000000"]
    ),
    "prewarmed by a text for segments": prewarmed("BTREE", "own", index_segments="x"),
    "same session": same_session,
}  # fmt: skip
CASES = [Case("operations", name, run) for name, run in RUNS.items()]
