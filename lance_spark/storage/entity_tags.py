"""Tags of files: texts by which a listing shows that a file is still the one that was read.

A store gives each object that is written an entity tag, and Google Cloud Storage a generation. The
tag of this package has the size and the time of the write, too: an object whose bytes were restored
from a copy has another tag. Without an entity tag a file has no tag, because another file of the
same size can be written within the second that times are rounded to.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

#: Names of entity tags in listings of s3fs, adlfs and obstore, and of gcsfs.
_ENTITY = ("ETag", "etag", "e_tag", "generation")
_OTHERS = ("size", "Size", "LastModified", "last_modified", "updated")
_LENGTH = 12


class Tagged(NamedTuple):
    """A file of a listing.

    - `tag`: None if the listing has no entity tags.
    """

    name: str
    tag: str | None


def tag_of(entry: Mapping[str, Any]) -> str | None:
    """Return the tag of a file, from its entry in a listing; None without an entity tag."""
    entity = [str(entry[name]) for name in _ENTITY if entry.get(name)]
    if not entity:
        return None
    parts = (*entity, *(str(entry.get(name)) for name in _OTHERS))
    return blake2b("\n".join(parts).encode(), digest_size=_LENGTH).hexdigest()
