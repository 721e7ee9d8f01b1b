"""Tags, branches, cleanup, restored versions, changes between versions, statistics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.interop.shadow.client import Client
from tests.interop.shadow.outcomes import Case

Run = Callable[[Client, Path], Any]
ROWS = pa.table({"a": [1, 2, 3, 4], "b": ["x", None, "z", "w"]})
MORE = pa.table({"a": [5, 6], "b": ["p", "q"]})


def made(client: Client, path: Path, **options: Any) -> Any:
    """Return version 3: rows, more rows, without one row."""
    client.write(ROWS, path, max_rows_per_file=2, **options)
    client.write(MORE, path, mode="append")
    client.open(path).delete("a = 2")
    return client.open(path)


def of(fact: Callable[[Any], Any], **options: Any) -> Run:
    return lambda client, path: fact(made(client, path, **options))


def then(*changes: Callable[[Any], Any], fact: Callable[[Any], Any]) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        for change in changes:
            change(client.open(path))
        return fact(client.open(path))

    return run


def facts(dataset: Any) -> Any:
    return dataset.version, dataset.to_table().sort_by("a"), dataset.count_rows()


def on_branch(*changes: Callable[[Any], Any], fact: Callable[[Any], Any]) -> Run:
    """Change a branch, and return a fact of the branch and of the main branch."""

    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        dataset.create_branch("dev")
        for change in changes:
            change(dataset.checkout_version(("dev", None)))
        newest = client.open(path)
        return fact(newest.checkout_version(("dev", None))), facts(newest)

    return run


def cleaned(**options: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        stats = dataset.cleanup_old_versions(**options)
        newest = client.open(path)
        versions = newest.versions()
        return stats.old_versions, len(versions), facts(newest)

    return run


def cleaned_with_a_tag(client: Client, path: Path) -> Any:
    dataset = made(client, path)
    dataset.tags.create("kept", 1)
    stats = dataset.cleanup_old_versions(
        timedelta(0), delete_unverified=True, error_if_tagged_old_versions=False
    )
    return stats.old_versions, facts(client.open(path).checkout_version("kept"))


def cloned(method: str, *reference: Any) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path)
        target = str(path) + "_clone"
        clone = getattr(dataset, method)(target, *reference)
        client.write(MORE, target, mode="append")
        return facts(client.open(target)), clone.version, facts(client.open(path))

    return run


def changes_of(method: str) -> Run:
    def run(client: Client, path: Path) -> Any:
        dataset = made(client, path, enable_stable_row_ids=True)
        dataset.merge_insert("a").when_matched_update_all().when_not_matched_insert_all().execute(
            pa.table({"a": [1, 9], "b": ["new", "nine"]})
        )
        newest = client.open(path)
        delta = newest.delta(begin_version=2, end_version=newest.version)
        rows = getattr(delta, method)().read_all()
        return sorted(rows["a"].to_pylist())

    return run


def uncommitted(*, twice: bool = False) -> Run:
    def run(client: Client, path: Path) -> Any:
        made(client, path)
        transaction = client.write_fragments(MORE, str(path), return_transaction=True)
        dataset = client.commit(str(path), transaction, transaction.read_version)
        if twice:
            dataset = client.commit(str(path), transaction, transaction.read_version)
        return facts(dataset), dataset.read_transaction(dataset.version).read_version

    return run


RUNS: dict[str, Run] = {
    "tags in order": then(
        lambda d: d.tags.create("b", 2),
        lambda d: d.tags.create("a", 1),
        fact=lambda d: [(name, tag["version"]) for name, tag in d.tags.list_ordered("asc")],
    ),
    "a tag of the newest version": then(
        lambda d: d.tags.create("new", d.version), fact=lambda d: d.tags.get_version("new")
    ),
    "version of an unknown tag": of(lambda d: d.tags.get_version("q")),
    "tag with a bad name": of(lambda d: d.tags.create("a b", 1)),
    "tag without a name": of(lambda d: d.tags.create("", 1)),
    "tag with a slash": of(lambda d: [d.tags.create("a/b", 1), sorted(d.tags.list())]),
    "tag of a tag": then(
        lambda d: d.tags.create("a", 1),
        lambda d: d.tags.create("b", "a"),
        fact=lambda d: d.tags.get_version("b"),
    ),
    "deleted tag": then(
        lambda d: d.tags.create("a", 1), lambda d: d.tags.delete("a"), fact=lambda d: d.tags.list()
    ),
    "move of an unknown tag": of(lambda d: d.tags.update("a", 1)),
    "tag moved to an unknown version": then(
        lambda d: d.tags.create("a", 1), fact=lambda d: d.tags.update("a", 99)
    ),
    "checkout of an unknown tag": of(lambda d: d.checkout_version("q")),
    "restore of a tag": then(
        lambda d: d.tags.create("a", 1), lambda d: d.checkout_version("a").restore(), fact=facts
    ),
    "restore of the newest version": then(lambda d: d.restore(), fact=facts),
    "restore, then append": then(
        lambda d: d.checkout_version(1).restore(), lambda d: d.insert(MORE), fact=facts
    ),
    "restored deletion": then(lambda d: d.checkout_version(2).restore(), fact=facts),
    "change of an old version": of(lambda d: facts(d.checkout_version(1)) and d.version),
    "latest of an old version": of(lambda d: d.checkout_version(1).latest_version),
    "branch of the newest version": on_branch(fact=facts),
    "branch, appended to": on_branch(lambda d: d.insert(MORE), fact=facts),
    "branch, deleted from": on_branch(lambda d: d.delete("a = 5"), fact=facts),
    "branch, with a column": on_branch(
        lambda d: d.add_columns(pa.field("n", pa.int64())), fact=lambda d: d.to_table().schema
    ),
    "branch twice": of(lambda d: [d.create_branch("dev"), d.create_branch("dev")]),
    "branch of an old version": of(lambda d: facts(d.create_branch("old", 1))),
    "branch of an unknown version": of(lambda d: d.create_branch("old", 99)),
    "branch of a branch": of(
        lambda d: facts(d.create_branch("dev").create_branch("more"))
    ),
    "branch main": of(lambda d: d.create_branch("main")),
    "branch with a slash": of(lambda d: [d.create_branch("a/b"), sorted(d.branches.list())][1]),
    "deleted branch": then(
        lambda d: d.create_branch("dev"),
        lambda d: d.branches.delete("dev"),
        fact=lambda d: sorted(d.branches.list()),
    ),
    "deletion of an unknown branch": of(lambda d: d.branches.delete("q")),
    "checkout of an unknown branch": of(lambda d: d.checkout_version(("q", None))),
    "tag on a branch": then(
        lambda d: d.create_branch("dev").tags.create("t", ("dev", None)),
        fact=lambda d: facts(d.checkout_version("t")),
    ),
    "cleanup of all": cleaned(older_than=timedelta(0), delete_unverified=True),
    "cleanup of the last days": cleaned(older_than=timedelta(days=3)),
    "cleanup, two kept": cleaned(retain_versions=2, delete_unverified=True),
    "cleanup, none kept": cleaned(retain_versions=0),
    "cleanup with a tag": cleaned_with_a_tag,
    "cleanup of a tagged version": then(
        lambda d: d.tags.create("a", 1),
        fact=lambda d: d.cleanup_old_versions(timedelta(0), delete_unverified=True),
    ),
    "shallow clone of a version": cloned("shallow_clone", 1),
    "shallow clone of an unknown version": cloned("shallow_clone", 99),
    "deep clone of a version": cloned("deep_clone", 1),
    "deep clone of the newest version": cloned("deep_clone", 3),
    "rows inserted between versions": changes_of("get_inserted_rows"),
    "rows updated between versions": changes_of("get_updated_rows"),
    "transactions between versions": of(
        lambda d: len(d.delta(begin_version=1, end_version=3).list_transactions()),
        enable_stable_row_ids=True,
    ),
    "changes backwards": of(
        lambda d: d.delta(begin_version=3, end_version=1).list_transactions(),
        enable_stable_row_ids=True,
    ),
    "written fragments": uncommitted(),
    "written fragments twice": uncommitted(twice=True),
    "statistics": of(lambda d: [d.stats.dataset_stats()[n] for n in ("num_fragments",
        "num_deleted_rows")]),
    "bytes of fields": of(
        lambda d: [field.id for field in d.stats.data_stats().fields]
    ),
    "largest field": of(lambda d: d.max_field_id),
    "fields with ids": of(
        lambda d: [(f.name(), f.id()) for f in d.lance_schema.fields()]
    ),
    "schema by ids": of(lambda d: d.lance_schema.to_pyarrow()),
    "fragments": of(lambda d: sorted(d.fragment_ids())),
    "versions of the rows": of(
        lambda d: d.to_table(["a", "_row_created_at_version", "_row_last_updated_at_version"])
        .sort_by("a"),
        enable_stable_row_ids=True,
    ),
    "compaction with deletions": then(
        lambda d: d.optimize.compact_files() if hasattr(d, "optimize") else d.compact_files(),
        fact=lambda d: [len(d.get_fragments()), facts(d)[1:]],
    ),
    "compaction that keeps deletions": then(
        lambda d: (d.optimize if hasattr(d, "optimize") else d).compact_files(
            materialize_deletions=False
        ),
        fact=facts,
    ),
    "compaction to small fragments": then(
        lambda d: (d.optimize if hasattr(d, "optimize") else d).compact_files(
            target_rows_per_fragment=2
        ),
        fact=lambda d: [len(d.get_fragments()), facts(d)[1]],
    ),
    "message of a commit": of(
        lambda d: [
            d.insert(MORE, commit_message="why"),
            dict(d.checkout_latest().read_transaction(4).transaction_properties)
            if d.checkout_latest()
            else dict(d.read_transaction(4).transaction_properties),
        ][1].get("__lance_commit_message"),
    ),
}  # fmt: skip
CASES = [Case("history", name, run) for name, run in RUNS.items()]
