"""Branches of tables that were copied or moved: their base paths name the old place.

A branch is a shallow clone in a folder of its table: it finds the files that it shares with the rest of the table by a base path, which is
absolute. A copy of the whole table has a copy of the branch, whose base path still names the original. Reading it there would give the
rows of the original's files, or fail once the original is gone. So such a branch is refused until its base paths name the copy
(`lance_spark.table.refs.branch_repair`). pylance reads the original's files.
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
    """Refuse a version of a branch that reads files of another table, which the table was copied from.

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
        used = {file.base_id for one in manifest.fragments for file in one.files}
        read = [base for number, base in foreign.items() if number in used]
        if read:
            raise CorruptTableError(
                f"{store.display}: version {manifest.version} of the branch {branch!r} reads files below "
                f"{parse_uri(read[0].path).display}, and none below the table's own root: the table was copied or moved. Repair its "
                "branches by Dataset.repair_branches or LanceTable.repairBranches; if both paths lead to one table, read it with the "
                f"storage option {FOREIGN_BRANCH_BASES}=true"
            )


def foreign_roots(main: ObjectStore, bases: Mapping[int, BasePath]) -> dict[int, BasePath]:
    """Return the base paths that are roots of tables, and none of this one or its branches."""
    own = canonical(main.base_uri)
    return {
        number: base
        for number, base in bases.items()
        if base.is_dataset_root
        and not f"{canonical(base.path)}/".startswith(f"{own}/{ref_names.TREE}/")
        and canonical(base.path) != own
    }


def canonical(path: str) -> str:
    """Return a path by which different spellings of one place are the same."""
    place = parse_uri(path).objects
    if place.is_local:
        return os.path.realpath(place.uri)
    rest = place.uri.partition("://")[2].partition("?")[0].rstrip("/")
    host, slash, folder = rest.partition("/")
    family = family_of(place.scheme)
    if family == "azure":
        host = host.partition("@")[0]
    return f"{family or place.scheme}://{host}{slash}{folder}"


def _is_allowed(options: Mapping[str, Any]) -> bool:
    for name, value in options.items():
        if name.lower() == FOREIGN_BRANCH_BASES:
            return parse_flag(FOREIGN_BRANCH_BASES, str(value))
    return False
