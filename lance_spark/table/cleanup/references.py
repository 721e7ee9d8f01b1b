"""What is referenced: the files that versions of a table refer to.

Files are compared by what manifests call them, relative to the root that is cleaned up:

| in a manifest | means |
| --- | --- |
| `DataFile.path`, no base path | `data/<path>` of the manifest's own root |
| `DeletionFile`, no base path | `_deletions/<fragment>-<read version>-<id>.<suffix>` of its own root |
| either, with a base path | any file of that name, in every root of the table |
| `ExternalFile.path` of row ids and versions | that path of its own root, and any file of that name in every root |
| `IndexMetadata.uuid` | `_indices/<uuid>/` in every root of the table |
| `transaction_file` | `_transactions/<name>` of its own root |

Where a base path points to is not asked when files are to be kept: paths of one folder can be written in many ways (links,
relative paths, other schemes), and names of files are random. Versions that go, on the other hand, prove only of files
that they call their own that no job is still writing them.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import table_pb2
from lance_spark.storage.uri import check_relative, parse_uri
from lance_spark.table.cleanup.files import Candidate, FileKind, owner_of
from lance_spark.table.commit.transaction import FOLDER as TRANSACTIONS
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.paths import DATA, DELETIONS

_SUFFIXES = {table_pb2.DeletionFile.ARROW_ARRAY: "arrow", table_pb2.DeletionFile.BITMAP: "bin"}
_UUID_BYTES = 16
#: Bytes of a fragment that are kept to know it again.
_SHORT = 512


class References:
    """What a number of versions refer to.

    Attributes
    ----------
    paths : set of str
        Data, deletion and transaction files in the root itself, and files with row ids or versions.
    names : set of str
        Data and deletion files below base paths, and files with row ids or versions, without their folders.
    indices : set of str
        Uuids of indexes.
    """

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.names: set[str] = set()
        self.indices: set[str] = set()

    def __contains__(self, candidate: Candidate) -> bool:
        return self.own(candidate) or candidate.name in self.names

    def own(self, candidate: Candidate) -> bool:
        """Tell whether a file is one of those in the root itself."""
        if candidate.kind is FileKind.INDEX or "/" not in candidate.owner:
            return candidate.owner in self.indices
        return candidate.owner in self.paths

    def add(self, found: References) -> None:
        """Take over what other versions refer to."""
        self.paths |= found.paths
        self.names |= found.names
        self.indices |= found.indices


class KnownFragments:
    """Fragments that versions have been looked at for before: most of them are in many versions."""

    def __init__(self) -> None:
        self._known: set[tuple[frozenset[int], bytes]] = set()

    def new(self, proto: table_pb2.Manifest, bases: set[int]) -> list[table_pb2.DataFragment]:
        """Return the fragments that were not there before, in versions for which the same base paths are the root."""
        key = frozenset(bases)
        fresh: dict[tuple[frozenset[int], bytes], table_pb2.DataFragment] = {}
        for fragment in proto.fragments:
            mark = key, _mark(fragment.SerializeToString())
            if mark not in self._known:
                fresh[mark] = fragment
        self._known.update(fresh)
        return list(fresh.values())


def references_of(
    manifest: Manifest, *, root: str, own: bool, known: KnownFragments | None = None
) -> References:
    """Collect what a version refers to.

    Parameters
    ----------
    manifest : Manifest
    root : str
        URI of the root that is cleaned up.
    own : bool
        Whether the version is one of that root; else only what it refers to elsewhere counts.
    known : KnownFragments, optional
        Leaves out what fragments refer to that are known already.

    Raises
    ------
    CorruptTableError
        A name leads out of its folder, or the index section cannot be read: nobody can tell what the version needs.
    """
    proto = manifest.message
    bases = {base.id for base in proto.base_paths if _is_root(base, root)} if own else set()
    found = References()
    data: set[tuple[int | None, str]] = set()
    deletions: set[tuple[int | None, str]] = set()
    external: set[str] = set()
    for fragment in proto.fragments if known is None else known.new(proto, bases):
        for file in fragment.files:
            data.add((file.base_id if file.HasField("base_id") else None, file.path))
        for overlay in fragment.overlays:
            file = overlay.data_file
            data.add((file.base_id if file.HasField("base_id") else None, file.path))
        if fragment.HasField("deletion_file"):
            deletion = fragment.deletion_file
            suffix = _SUFFIXES.get(deletion.file_type)
            if suffix is None:
                raise CorruptTableError(
                    f"{manifest.name}: fragment {fragment.id}: {deletion.file_type} is no type of deletion files"
                )
            name = f"{fragment.id}-{deletion.read_version}-{deletion.id}.{suffix}"
            deletions.add((deletion.base_id if deletion.HasField("base_id") else None, name))
        external.update(
            getattr(fragment, kind.external).path
            for kind in Lineage
            if fragment.HasField(kind.external)
        )
    for folder, files in ((DATA, data), (DELETIONS, deletions)):
        for base, path in files:
            _check(path, manifest)
            if base is not None:
                found.names.add(path.rsplit("/", 1)[-1])
            if own and (base is None or base in bases):
                found.paths.add(f"{folder}/{path}")
    for path in external:
        _check(path, manifest)
        if own:
            found.paths.add(path)
        # Nothing tells whose it is in a clone that another client made, nor what else is in the folder that it lies in.
        found.names.update(one.rsplit("/", 1)[-1] for one in (path, owner_of(path)) if one)
    if own and manifest.transaction_file:
        found.paths.add(f"{TRANSACTIONS}/{manifest.transaction_file}")
    found.indices.update(_uuids(manifest))
    return found


def _check(path: str, manifest: Manifest) -> None:
    try:
        check_relative(path)
    except InvalidInputError as error:
        raise CorruptTableError(f"{manifest.name}: {error}") from None


def _mark(fragment: bytes) -> bytes:
    """Return what stands for a fragment: a digest of those with long sequences of row ids."""
    return fragment if len(fragment) <= _SHORT else blake2b(fragment).digest()


def _uuids(manifest: Manifest) -> Iterable[str]:
    section = table_pb2.IndexSection()
    try:
        section.ParseFromString(manifest.index_section or b"")
    except DecodeError as error:
        raise CorruptTableError(f"{manifest.name}: no readable index section: {error}") from None
    for index in section.indices:
        digits = index.uuid.uuid.hex()
        if len(digits) != 2 * _UUID_BYTES:
            raise CorruptTableError(
                f"{manifest.name}: index {index.name!r}: its uuid has {len(digits) // 2} bytes, not {_UUID_BYTES}"
            )
        yield "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _is_root(base: table_pb2.BasePath, root: str) -> bool:
    try:
        return base.is_dataset_root and parse_uri(base.path).objects.uri == root
    except InvalidInputError:
        return False
