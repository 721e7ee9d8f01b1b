"""The metadata that a build computes: the page of the package on PyPI, and its links.

README.md links to files of the repository. PyPI has no such files, so the links of its page lead
to the repository that pyproject.toml names, at the tag of the version. As long as it names none,
the page has the texts of the links without links.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:
    # Tests call the functions of this module, and need no tools to build.
    MetadataHookInterface = object

#: A link or picture of Markdown whose target is a path.
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def page_of(readme: str, repository: str, version: str) -> str:
    """Return the text of README.md with links that work outside of the repository."""
    if not repository:
        return _LINK.sub(r"\2", readme)
    return _LINK.sub(rf"\1[\2]({repository}/blob/v{version}/\3)", readme)


def urls_of(repository: str, version: str) -> dict[str, str]:
    """Return the links beside the page."""
    if not repository:
        return {}
    files = f"{repository}/blob/v{version}"
    return {
        "Repository": repository,
        "Issues": f"{repository}/issues",
        "Documentation": f"{repository}/tree/v{version}/docs",
        "Changelog": f"{files}/CHANGELOG.md",
        "Security": f"{files}/SECURITY.md",
    }


class MetadataHook(MetadataHookInterface):
    """Sets the fields that pyproject.toml calls dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        root = Path(self.root)
        source = (root / "lance_spark" / "_version.py").read_text()
        version = re.findall(r'"(.+)"', source)[-1]
        repository = self.config["repository"].rstrip("/")
        readme = page_of((root / "README.md").read_text(), repository, version)
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
        metadata["urls"] = urls_of(repository, version)
