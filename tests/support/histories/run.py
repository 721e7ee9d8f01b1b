"""Random histories of a small table that both clients change in turn, and the checks after each
step.

A history is a list of steps; a step is a kind of change, a client, a seed of its own and how old the version is that it is planned on.
What is left of a list when some of its steps are taken out is a history too, so that `history_shrink` finds a short one that fails the same way:

    python -m tests.support.histories.shrink SEED
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa

import lance_spark
from lance_spark.errors import LanceError, VersionNotFoundError
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.write import begin_write
from lance_spark.table.manifest.codec import read_manifest
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.manifest.versions import list_manifests
from tests.support.histories.checks import (
    check_content,
    check_indexes,
    check_manifest,
    check_queries,
)
from tests.support.histories.common import Common, Maker, first_columns
from tests.support.histories.layout import VECTOR_TYPES, create_vector_index
from tests.support.histories.model import KEY, VECTOR, Change, KnownBugError, State, settled
from tests.support.histories.outcomes import is_conflict, possible_outcomes, was_cast
from tests.support.histories.plan import OTHERS, Plan, Step
from tests.support.histories.steps import MAKERS


@dataclass
class Branch:
    """The existing versions of a branch, and their content."""

    uri: str
    states: dict[int, State] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    overlays: set[int] = field(default_factory=set)

    @property
    def newest(self) -> int:
        return max(self.states)

    def given_back(self, version: int, planned: State, current: State) -> dict[int, int]:
        """Return the versions of rows before the overlays that came after a version."""
        after = {number for number in self.overlays if number > version}
        return {
            key: planned.rows[key].updated
            for key, row in current.rows.items()
            if row.updated in after and key in planned.rows
        }


_NO_NULL_STRUCTS = ("does not encode struct validity", "structs are null, which file version 2.0")


@dataclass
class History:
    """A history that is running."""

    plan: Plan
    path: Path
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = Random(self.plan.seed)
        version, stable = random.choice(["2.0", "2.1", "2.2"]), random.random() < 0.5
        self.common = Common(version, stable, overlays=random.random() < 0.15)
        self.branches: dict[str, Branch] = {"main": Branch(str(self.path))}
        self.clones: dict[str, Branch] = {}
        self.tags: dict[str, tuple[str, int]] = {}
        self.pending: tuple[str, int, State, Change, bool] | None = None
        self.names = iter(range(1000))
        self.random = random

    def run(self) -> None:
        self.create()
        for place, step in enumerate(self.plan.steps):
            random = Random(step.seed)
            everything = {**self.branches, **self.clones}
            name = random.choice(list(everything)) if random.random() < 0.4 else "main"
            branch = everything[name]
            if step.kind in OTHERS:
                getattr(self, step.kind)(step, random, name, branch)
            else:
                maker = next(item for item in MAKERS if item.__name__ == step.kind)
                self.change(step, random, branch, maker)
            if place in (len(self.plan.steps) // 2, len(self.plan.steps) - 1):
                self.check_all()

    def create(self) -> None:
        random, common = self.random, self.common
        columns = first_columns(common, random)
        if self.plan.has_vectors:
            columns = (*columns, common.column(random, (VECTOR,)))
        number = 6000 if random.random() < 0.02 else random.choice([0, 3, 12, 40])
        rows = common.rows(columns, common.keys(number), random)
        state = State(columns, rows)
        options: dict[str, Any] = {
            # Deletion files of large tables can be bitmaps.
            "max_rows_per_file": random.choice([5, 13, 100]) * (1 if number < 1000 else 1000),
            "data_storage_version": common.data_version,
            "enable_stable_row_ids": common.stable,
        }
        data = state.table()
        if random.random() < 0.15:
            # Merges record the keys that they insert.
            marked = KEY.with_metadata({"lance-schema:unenforced-primary-key": "true"})
            data = data.cast(data.schema.set(0, marked))
        ours = random.random() < 0.5
        write = lance_spark.write_dataset if ours else lance.write_dataset
        if not ours and random.random() < 0.2:
            options["enable_v2_manifest_paths"] = False
        write(data, str(self.path), **options)
        self.log.append(
            f"create by {'us' if ours else 'pylance'}: {len(rows)} rows, {options}, {state.schema}"
        )
        branch = self.branches["main"]
        self.accept(branch, [state], Change("create", None, None, lambda _, n: n))
        if self.plan.has_vectors:
            state = branch.states[branch.newest]
            column, kind = columns[-1].name, random.choice(VECTOR_TYPES)
            change = create_vector_index(column, kind, state, random)
            self.make(change, random.random() < 0.5, branch, branch.newest, state, state)
        if common.stable and random.random() < 0.15:
            # Ids and versions of rows are stored in hidden columns.
            values = {
                "lance.row_lineage.spill": "true",
                "lance.row_lineage.inline_max_bytes": random.choice(["0", "20"]),
            }
            change = Change(
                "spill row ids",
                None,
                lambda dataset: dataset.update_config(values),
                lambda _, current: replace(current, config=values),
            )
            state = branch.states[branch.newest]
            self.make(change, False, branch, branch.newest, state, state)

    def ours(self, branch: Branch, version: int | None = None) -> lance_spark.Dataset:
        return lance_spark.open_dataset(branch.uri, version)

    def theirs(self, branch: Branch, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(branch.uri, version=version)

    def change(self, step: Step, random: Random, branch: Branch, maker: Maker) -> None:
        versions = sorted(branch.states)
        version = versions[-1 - min(step.age, len(versions) - 1)]
        planned, current = branch.states[version], branch.states[versions[-1]]
        change = maker(self.common, planned, random)
        if change is None:
            return
        ours = (step.ours or change.theirs is None) and change.ours is not None
        self.make(change, ours, branch, version, planned, current)

    def make(
        self,
        change: Change,
        ours: bool,
        branch: Branch,
        version: int,
        planned: State,
        current: State,
    ) -> None:
        stale = version != branch.newest
        if not ours and any(
            number not in branch.states for number in range(version, branch.newest)
        ):
            self.counts["pylance passes over versions that were cleaned up meanwhile"] += 1
            return
        if not ours and change.name.startswith("append") and was_cast(planned, current):
            self.counts["pylance loses what is appended to a column that was cast meanwhile"] += 1
            return
        if not ours and change.name.startswith("compact") and self.has_foreign_vectors(branch):
            self.counts["pylance loses files of vector indexes of other branches"] += 1
            return
        self.log.append(
            f"{branch.uri[len(str(self.path)) :] or 'main'} {branch.newest}: {change.name} "
            f"by {'us' if ours else 'pylance'}{f', planned on {version}' if stale else ''}"
        )
        try:
            if ours:
                assert change.ours is not None
                change.ours(self.ours(branch, version))
            else:
                assert change.theirs is not None
                change.theirs(self.theirs(branch, version))
        except (LanceError, OSError, ValueError, RuntimeError) as error:
            text = str(error).lower()
            _check_not_marked(error)
            if "found unmasked nulls for non-nullable" in text:
                raise KnownBugError("a NOT NULL column is read with deleted nulls") from error
            refused = change.refusal and change.refusal in text
            # Rows that lack a struct cannot be written again. Stale appends leave them out.
            refused = refused or any(words in text for words in _NO_NULL_STRUCTS)
            if not refused and not (stale and is_conflict(error, planned, current)):
                raise
            self.log.append(f"   {type(error).__name__}: {error}")
            self.counts["refused" if refused else "conflicts"] += 1
            self.accept(branch, [current], replace(change, name="nothing", commits=False))
            return
        self.counts[change.name.split()[0]] += 1
        if not ours and change.name.startswith(("update", "merge_insert")):
            change = replace(change, given_back=branch.given_back(version, planned, current))
        self.accept(branch, list(possible_outcomes(change, planned, current, stale)), change)
        if change.name.startswith("overlay"):
            branch.overlays.add(branch.newest)

    def has_foreign_vectors(self, branch: Branch) -> bool:
        """Return whether a branch or clone may have indexes of vectors in files of another."""
        indexes = self.ours(branch).describe_indices()
        return branch is not self.branches["main"] and any(
            index.index_type.startswith("IVF") for index in indexes
        )

    def accept(self, branch: Branch, outcomes: list[State], change: Change) -> None:
        """Find the outcome that the newest version has, and fail if it has none."""
        theirs, ours = self.theirs(branch), self.ours(branch)
        version = theirs.version
        assert ours.version == version, f"we see version {ours.version}, pylance {version}"
        before = branch.newest if branch.states else 0
        if version == before and not change.commits:
            outcomes = [branch.states[before]]
        else:
            assert version > before, f"still version {version}"
            # A failed compaction may have reserved fragments.
            several = ("compact", "index", "optimize", "nothing")
            assert version == before + 1 or change.name.startswith(several)
        outcomes = [settled(outcome, version) for outcome in outcomes]
        if any("<unknown>" in index["fields"] for index in theirs.list_indices()):
            raise KnownBugError("an index on a column that is gone breaks queries and compaction")
        state = check_content(ours, theirs, outcomes, change, stable=self.common.stable)
        check_queries(ours, theirs, state, Random(version))
        for between in range(before + 1, version):
            branch.states[between] = branch.states[before]
        branch.states[version] = state
        if any("auto_cleanup" in key for key in state.config):
            self.forget_removed(branch)
        self.check_new_manifests(branch, change)

    def forget_removed(self, branch: Branch, newest: int = 1) -> None:
        """Forget versions that were removed. Check that all versions that must stay exist."""
        existing = {item.version for item in list_manifests(ObjectStore.from_uri(branch.uri))}
        name = next(
            n
            for n, other_branch in {**self.branches, **self.clones}.items()
            if other_branch is branch
        )
        kept = set(sorted(branch.states)[-newest:])
        kept |= {
            version for name_of_branch, version in self.tags.values() if name_of_branch == name
        }
        assert existing <= branch.states.keys()
        assert existing >= kept & branch.states.keys(), f"versions {existing} are left, not {kept}"
        branch.states = {version: branch.states[version] for version in sorted(existing)}
        branch.manifests = {
            version: manifest
            for version, manifest in branch.manifests.items()
            if version in existing
        }

    def check_new_manifests(self, branch: Branch, change: Change) -> None:
        store = ObjectStore.from_uri(branch.uri)
        for location in list_manifests(store):
            if location.version in branch.manifests:
                continue
            manifest = read_manifest(store, location)
            before = branch.manifests.get(location.version - 1)
            check_manifest(manifest, before, change)
            branch.manifests[location.version] = manifest

    # Steps that do not change the newest version only.

    def restore(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        version = random.choice(sorted(branch.states))
        old = branch.states[version]
        change = Change(
            f"restore {version}",
            lambda dataset: dataset.restore(),
            lambda dataset: dataset.restore(),
            lambda _planned, _now: old,
            gives_back_fragments=True,
        )
        current = branch.states[branch.newest]
        self.make(change, step.ours, branch, version, current, current)

    def tag(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        if name in self.clones:
            return
        version = random.choice(sorted(branch.states))
        reference = (name if name != "main" else None, version)
        choice = random.random()
        movable = [item for item in sorted(self.tags) if not item.startswith("clone")]
        if choice < 0.5 or not movable:
            tag = f"t{next(self.names)}"
            self.named(lambda main: main.tags.create(tag, reference), step)
            self.tags[tag] = (name, version)
            done = f"tag {tag}: {reference}"
        else:
            tag = random.choice(movable)
            if choice < 0.75:
                self.named(lambda main: main.tags.update(tag, reference), step)
                self.tags[tag] = (name, version)
                done = f"tag {tag} is now {reference}"
            else:
                self.main(step.ours).tags.delete(tag)
                del self.tags[tag]
                done = f"delete tag {tag}"
        self.log.append(f"{done} by {'us' if step.ours else 'pylance'}")

    def branch(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        leaves = [branch for branch in self.branches if branch != "main" and self.can_go(branch)]
        client = "us" if step.ours else "pylance"
        if leaves and random.random() < 0.4:
            gone = random.choice(leaves)
            self.log.append(f"delete branch {gone} by {client}")
            self.main(step.ours).branches.delete(gone)
            del self.branches[gone]
            return
        if len(self.branches) > 3 or name in self.clones:
            return
        version = random.choice(sorted(branch.states))
        new = f"b{next(self.names)}"
        new = f"{name}/{new}" if name != "main" and random.random() < 0.5 else new
        self.log.append(f"branch {new} of {name} {version} by {client}")
        reference = (name if name != "main" else None, version)
        created = self.named(lambda main: main.create_branch(new, reference), step)
        state = branch.states[version]
        result = Branch(str(self.path / "tree" / new))
        self.branches[new] = result
        assert created.version == version
        result.states[version] = state
        self.check_new_manifests(result, Change("branch", None, None, lambda _, n: n))

    def named(self, name_version: Callable[[Any], Any], step: Step) -> Any:
        """Give a version a tag or a branch, and return what the client returns."""
        try:
            return name_version(self.main(step.ours))
        except VersionNotFoundError as error:
            _check_not_marked(error)
            raise

    def can_go(self, name: str) -> bool:
        """Return whether nothing depends on a branch."""
        listed = self.main(ours=True).branches.list()
        return not any(value["parent_branch"] == name for value in listed.values()) and not any(
            branch == name for branch, _ in self.tags.values()
        )

    def cleanup(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        keep = random.choice([1, 2, 4])
        # No client may write a table during this step.
        unverified = random.random() < 0.5 and self.pending is None
        options: dict[str, Any] = {"retain_versions": keep, "delete_unverified": unverified}
        if random.random() < 0.5:
            options = {"older_than": timedelta(0), "delete_unverified": unverified}
        self.log.append(
            f"clean up {name} {branch.newest} {options} by {'us' if step.ours else 'pylance'}"
        )
        dataset = self.ours(branch) if step.ours else self.theirs(branch)
        dataset.cleanup_old_versions(error_if_tagged_old_versions=False, **options)
        self.forget_removed(branch, options.get("retain_versions", 1))
        self.check_all()

    def late_append(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        """Rows are written now, and committed some steps later."""
        if self.pending is None:
            state = branch.states[branch.newest]
            rows = self.common.rows(state.columns, self.common.keys(random.choice([1, 9])), random)
            write = _our_append if step.ours else _their_append
            dataset = self.ours(branch) if step.ours else self.theirs(branch)
            finish = write(dataset, state.table(rows))
            change = Change(
                f"append {len(rows)} rows that were written before",
                finish,
                finish,
                lambda _, current: current.with_rows({**current.rows, **rows}),
            )
            self.pending = (name, branch.newest, state, change, step.ours)
            self.log.append(f"write {len(rows)} rows to {name} {branch.newest}, not committed")
            return
        name, version, planned, change, ours = self.pending
        self.pending = None
        result = self.branches.get(name) or self.clones.get(name)
        if result is None or version not in result.states:
            return
        current = result.states[result.newest]
        self.make(change, ours, result, version, planned, current)

    def clone(self, step: Step, random: Random, name: str, branch: Branch) -> None:
        """Make another table, which refers to the files of this table, or has copies of them."""
        if len(self.clones) > 1 or name in self.clones:
            return
        version = random.choice(sorted(branch.states))
        reference = (name if name != "main" else None, version)
        shallow = random.random() < 0.7
        new = f"clone{next(self.names)}"
        self.log.append(
            f"{'shallow' if shallow else 'deep'} clone {new} of {reference} by {'us' if step.ours else 'pylance'}"
        )
        if shallow:
            try:
                self.main(ours=True).tags.create(new, reference)
            except VersionNotFoundError:
                # pylance's cleanup deletes the transaction file of a version that only a branch
                # keeps: no tag may name it then.
                assert version < branch.newest
                assert any("clean up" in line and "by pylance" in line for line in self.log)
                return
            self.tags[new] = (name, version)
        path = str(self.path.with_name(f"{self.path.name}-{new}"))
        main = self.main(step.ours)
        created = (main.shallow_clone if shallow else main.deep_clone)(path, reference)
        result = Branch(path)
        self.clones[new] = result
        result.states[created.version] = branch.states[version]
        self.check_new_manifests(result, Change("clone", None, None, lambda _, n: n))

    def main(self, ours: bool) -> Any:
        branch = self.branches["main"]
        return self.ours(branch) if ours else self.theirs(branch)

    def check_all(self) -> None:
        """Check every existing version on all branches, the tags, and the lists."""
        for branch in (*self.branches.values(), *self.clones.values()):
            ours = [version.version for version in self.ours(branch).versions()]
            theirs = sorted(version["version"] for version in self.theirs(branch).versions())
            assert ours == theirs == sorted(branch.states), (ours, theirs, sorted(branch.states))
            check_indexes(self.ours(branch))
            for version, state in branch.states.items():
                change = Change(f"version {version}", None, None, lambda _, current: current)
                check_content(
                    self.ours(branch, version),
                    self.theirs(branch, version),
                    [state],
                    change,
                    stable=self.common.stable,
                    brief=True,
                )
        ours_main, theirs_main = self.main(ours=True), self.main(ours=False)
        for listed in (ours_main.tags.list(), theirs_main.tags.list()):
            result = {
                tag: (entry["branch"] or "main", entry["version"]) for tag, entry in listed.items()
            }
            assert result == self.tags
        assert ours_main.branches.list().keys() == self.branches.keys() - {"main"}
        assert theirs_main.branches.list().keys() == self.branches.keys() - {"main"}


def _our_append(dataset: lance_spark.Dataset, data: pa.Table) -> Callable[[Any], object]:
    job = begin_write(dataset.uri, data.schema, mode="append")
    writer = job.writer()
    for batch in data.to_batches():
        writer.write(batch)
    fragments = writer.finish()
    return lambda _: job.commit(fragments)


def _their_append(dataset: lance.LanceDataset, data: pa.Table) -> Callable[[Any], object]:
    fragments = lance.fragment.write_fragments(data, dataset, mode="append")
    operation = lance.LanceOperation.Append(fragments)
    version = dataset.version
    return lambda stale: lance.LanceDataset.commit(stale, operation, read_version=version)


def _check_not_marked(error: Exception) -> None:
    """Raise `KnownBugError` if a cleanup has deleted the transaction file of a version that it keeps."""
    if isinstance(error, VersionNotFoundError) and "partly removed" in str(error):
        raise KnownBugError("cleanup deletes the transaction of a version with a name") from error


def run(seed: int, folder: Path, *, has_vectors: bool = False) -> Counter[str]:
    """Run a history. If something is wrong, raise AssertionError or the error of a client."""
    return run_plan(Plan.of_seed(seed, has_vectors=has_vectors), folder)


def run_plan(plan: Plan, folder: Path) -> Counter[str]:
    path = folder / f"history-{plan.seed}"
    history = History(plan, path)
    # Without this variable, pylance opens no table with overlays.
    os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"] = "1"
    try:
        with _quiet():
            history.run()
    except KnownBugError as bug:
        history.counts[f"pylance: {bug}"] += 1
    except BaseException as error:
        for line in [f"history {plan.seed}", *history.log]:
            error.add_note(line)
        raise
    finally:
        del os.environ["LANCE_ENABLE_UNSTABLE_DATA_OVERLAY_FILES"]
        for table_path in folder.glob(f"{path.name}*"):
            shutil.rmtree(table_path, ignore_errors=True)
    return history.counts


@contextmanager
def _quiet() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
