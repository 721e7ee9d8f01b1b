"""Names and numbers of the versions of data files."""

from __future__ import annotations

from lance_spark.errors import InvalidOptionError

#: The name of the file format in manifests.
FILE_FORMAT = "lance"
#: The last one is not stable: pylance 14 writes and reads it with a warning.
WRITABLE = ((0, 1), (2, 0), (2, 1), (2, 2), (2, 3))
DEFAULT = (2, 2)
LEGACY = (0, 1)
#: The version number in early files of version 2.0.
_FIRST_VERSION_2 = (0, 3)
_VERSIONS = {
    "stable": DEFAULT,
    "legacy": (0, 1),
    "0.1": (0, 1),
    "0.3": (2, 0),
    "2.0": (2, 0),
    "2.1": (2, 1),
    "2.2": (2, 2),
    "2.3": (2, 3),
    "next": (2, 3),
}


def parse_version(name: str) -> tuple[int, int]:
    """Return the file version that an option names.

    Raises InvalidOptionError: the version is unknown.
    """
    version = _VERSIONS.get(name.strip().lower())
    if version is None:
        raise InvalidOptionError(
            f"data storage version {name!r} is not a version of data files; choose {writable()}"
        )
    return version


def canonical(version: tuple[int, int]) -> tuple[int, int]:
    """Return the version of a data file, from the numbers in its message.

    Files of version 0.1 are marked 0.0, 0.1 or 0.2, and early files of version 2.0 are marked 0.3.
    """
    if version == _FIRST_VERSION_2:
        return 2, 0
    return LEGACY if version < _FIRST_VERSION_2 else version


def text(version: tuple[int, int]) -> str:
    """Return a file version as text, for example ``2.2``."""
    return f"{version[0]}.{version[1]}"


def writable() -> str:
    """List the file versions that this release writes, for errors."""
    *all_but_last, last = (text(version) for version in WRITABLE)
    return f"{', '.join(all_but_last)} or {last}"
