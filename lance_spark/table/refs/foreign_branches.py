"""Detection of branches that refer to the old location of a table that was copied or moved.

A branch is a shallow clone in a folder of its table. It refers to the files that it shares with
other branches by a base path, which is absolute. In a copy of the table, the base path of the
branch still points to the original. Reading such a branch would return rows of the original's
files, or fail once the original is gone. Readers therefore refuse the branch until its base paths
point to the copy (`lance_spark.table.refs.branch_repair`). pylance reads the original's files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lance_spark.errors import CorruptTableError
from lance_spark.storage.options.fsspec_options import FOREIGN_BRANCH_BASES, family_of, parse_flag
from lance_spark.storage.store import ObjectStore
from lance_spark.storage.uri import parse_uri
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import BasePath
from lance_spark.table.refs import names as ref_names


def check_branch_bases(store: ObjectStore, manifest: Manifest) -> None:
    """Raise an error if a version of a branch reads files of the table's old location.

    Parameters
    ----------
    store : ObjectStore
        Root of the branch, or of a table.
    manifest : Manifest

    Raises
    ------
    CorruptTableError
    """
    branch = manifest.branch
    main = ref_names.main_store(store, branch)
    if branch is None or main is store or _is_allowed(store.options):
        return
    bases = manifest.base_paths
    foreign = foreign_roots(main, bases)
    if len(foreign) == sum(base.is_dataset_root for base in bases.values()):
        used_ids = {file.base_id for fragment in manifest.fragments for file in fragment.files}
        used = [base for number, base in foreign.items() if number in used_ids]
        if used:
            raise CorruptTableError(
                f"{store.display}: version {manifest.version} of branch {branch!r} reads files "
                f"below {parse_uri(used[0].path).display} and no files below its own table's "
                "root: the table was copied or moved. Repair its branches by "
                "Dataset.repair_branches or LanceTable.repairBranches; if both paths lead to the "
                f"same table, read it with the storage option {FOREIGN_BRANCH_BASES}=true"
            )


def foreign_roots(main: ObjectStore, bases: Mapping[int, BasePath]) -> dict[int, BasePath]:
    """Return the base paths, by id, that are roots of other tables and of their branches."""
    root = canonical(main.base_uri)
    return {
        number: base
        for number, base in bases.items()
        if base.is_dataset_root
        and not f"{canonical(base.path)}/".startswith(f"{root}/{ref_names.TREE}/")
        and canonical(base.path) != root
    }


def canonical(path: str) -> str:
    """Return a form of a path or URI that is equal for different spellings of the same location."""
    location = parse_uri(path).objects
    if location.is_local:
        return os.path.realpath(location.uri)
    remainder = location.uri.partition("://")[2].partition("?")[0].rstrip("/")
    host, slash, folder = remainder.partition("/")
    family = family_of(location.scheme)
    if family == "azure":
        host = host.partition("@")[0]
    return f"{family or location.scheme}://{host}{slash}{folder}"


def _is_allowed(options: Mapping[str, Any]) -> bool:
    for name, value in options.items():
        if name.lower() == FOREIGN_BRANCH_BASES:
            return parse_flag(FOREIGN_BRANCH_BASES, str(value))
    return False
