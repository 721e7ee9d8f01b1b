"""Listing of the files below a table's root that cleanup may remove.

| path | purpose | owner: the name by which manifests refer to it |
| --- | --- | --- |
| `data/**/*.lance` | data | the path |
| `data/<stem>/*.blob` | data | the data file `data/<stem>.lance` |
| `_deletions/*.arrow`, `*.bin` | deletion | the path |
| `_indices/<uuid>/**` | index | the uuid of the index |
| `_transactions/*.txn` | transaction | the path |
| `.<name>.<32 hex digits>.tmp`, `.tmp*`, `<name>#<n>` | temporary | the owner of its folder |
| `_versions/<manifest>-<uuid>` | temporary | none |

Temporary files are left by writers that were killed: the first form of their names is this
package's, the others are pylance's. The last row is the staging file of a commit by an external
manifest store.

Files of any other name are never candidates, even if a manifest names them; neither are files of
other tables inside these folders. Manifests are listed by their versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from lance_spark.storage.listing import FileInfo
from lance_spark.storage.parallel import read_all
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.manifest import versions
from lance_spark.table.paths import DATA, DELETIONS
from lance_spark.table.refs.names import REFS, RESERVED

INDICES = "_indices"
#: The folders that may hold candidates.
_FOLDERS = (DATA, DELETIONS, INDICES, TRANSACTIONS, versions.FOLDER, REFS)
TEMPORARY = re.compile(
    r"\..+\.[0-9a-f]{32}\.tmp|\.tmp.*|.+\.(?:lance|manifest|txn|arrow|bin|blob|json)#\d+"
)
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_STAGING = re.compile(rf"([0-9]{{1,20}}\.manifest)-{UUID}")
#: A manifest of another table inside a folder of this one. Any file in the folder of an index
#: belongs to the index.
_INNER_MANIFEST = re.compile(
    rf"(?!_indices/{UUID}/)(.+)/{versions.FOLDER}/[^/]+\.manifest", re.DOTALL
)
_DEPTH_OF_BLOBS = 3
_DEPTH_OF_RENAMED = 3
_DEPTH_OF_INDEX_FILES = 3


class FilePurpose(Enum):
    """The purpose of a file."""

    MANIFEST = "manifest"
    DATA = "data"
    TRANSACTION = "transaction"
    INDEX = "index"
    DELETION = "deletion"
    TEMPORARY = "temporary"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that cleanup removes unless a remaining version refers to it.

    - `owner`: The name by which manifests refer to it: path of the data, deletion or transaction
      file, or uuid of the index. For a temporary file the owner of its folder; empty if the folder
      has no owner.
    - `version`: Version of a staging file; 0 for any other file.
    """

    info: FileInfo
    purpose: FilePurpose
    owner: str
    version: int = 0

    @property
    def is_temporary(self) -> bool:
        """Whether the file is the unfinished output of a writer."""
        return self.purpose is FilePurpose.TEMPORARY

    @property
    def name(self) -> str:
        """The owner's name without folders."""
        return self.owner.rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a table that cleanup may remove.

    - `candidates`: All files except manifests.
    - `manifests`: Manifests by version. A version has two files after an interrupted migration of
      manifest names.
    """

    candidates: list[Candidate]
    manifests: dict[int, list[FileInfo]]


def list_files(store: ObjectStore) -> Listing:
    """List the files below the root of a table that cleanup may remove. Raises StorageError."""
    listing = Listing([], {})
    trees = read_all(store.list_tree, _FOLDERS, local=store.is_local)
    inner = _inner_tables(info.path for infos in trees for info in infos)
    for folder, infos in zip(_FOLDERS, trees, strict=True):
        for info in infos:
            if inner and info.path.startswith(inner):
                continue
            candidate = classify(info)
            if candidate is not None:
                listing.candidates.append(candidate)
            elif folder == versions.FOLDER:
                location = versions.parse_name(info.path.removeprefix(f"{folder}/"))
                if location is not None:
                    listing.manifests.setdefault(location.version, []).append(info)
    return listing


def _inner_tables(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of other tables inside this table's folders."""
    # For example the folders of a branch `x/data` inside the folders of the branch `x`.
    roots = {match[1] for path in paths if (match := _INNER_MANIFEST.fullmatch(path)) is not None}
    return tuple(f"{root}/{folder}/" for root in roots for folder in RESERVED)


def classify(info: FileInfo) -> Candidate | None:
    """Return the candidate for a file; None if cleanup never removes files of that name."""
    steps = info.path.split("/")
    folder, name = steps[0], steps[-1]
    if TEMPORARY.fullmatch(name):
        return Candidate(info, FilePurpose.TEMPORARY, _folder_owner(steps))
    if (
        folder == versions.FOLDER
        and len(steps) == _DEPTH_OF_RENAMED
        and TEMPORARY.fullmatch(steps[1])
    ):
        # Left by an interrupted commit on HDFS.
        return Candidate(info, FilePurpose.TEMPORARY, "")
    if folder == versions.FOLDER and (staging := _STAGING.fullmatch(name)):
        location = versions.parse_name(staging[1])
        if location is not None:
            return Candidate(info, FilePurpose.TEMPORARY, "", location.version)
    if folder == DATA and name.endswith(".lance"):
        return Candidate(info, FilePurpose.DATA, info.path)
    if folder == DATA and name.endswith(".blob") and len(steps) == _DEPTH_OF_BLOBS:
        return Candidate(info, FilePurpose.DATA, _folder_owner(steps))
    if folder == INDICES and len(steps) >= _DEPTH_OF_INDEX_FILES:
        return Candidate(info, FilePurpose.INDEX, _folder_owner(steps))
    if folder == DELETIONS and name.endswith((".arrow", ".bin")):
        return Candidate(info, FilePurpose.DELETION, info.path)
    if folder == TRANSACTIONS and name.endswith(".txn"):
        return Candidate(info, FilePurpose.TRANSACTION, info.path)
    return None


def owner_of(path: str) -> str:
    """Return the owner of a file (see `Candidate`); empty if no cleanup removes such files."""
    candidate = classify(FileInfo(path, 0, None))
    return "" if candidate is None else candidate.owner


def _folder_owner(steps: list[str]) -> str:
    if steps[0] == INDICES and len(steps) >= _DEPTH_OF_INDEX_FILES:
        return steps[1]
    if steps[0] == DATA and len(steps) == _DEPTH_OF_BLOBS:
        return f"{DATA}/{steps[1]}.lance"
    return ""
