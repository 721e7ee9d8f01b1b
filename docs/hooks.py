"""Pages of the site that are files elsewhere in the repository, and links to them.

Pages below `docs/` link to `CONTRIBUTING.md`, to examples and to other files of the repository by
their relative paths, so that the links work where the repository is browsed. The site has a page
for each such file. This hook adds these pages, and points links to them.
"""

from __future__ import annotations

import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# mkdocs loads this file by its path, and takes the entry back when it has loaded it.
sys.path.insert(0, str(ROOT))

from docs.generated import completed  # noqa: E402

#: Files of the repository, and the pages of the site that show them.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "develop/changelog.md",
    "CONTRIBUTING.md": "develop/contributing.md",
    "SECURITY.md": "explanation/security.md",
    "benchmarks/README.md": "explanation/benchmarks.md",
    "spark-conf/README.md": "howto/cluster.md",
    "spark-conf/spark-defaults.conf": "examples/spark-defaults.md",
    "examples/": "examples/index.md",
    **{
        f"examples/{path.name}": f"examples/{path.stem}.md"
        for path in sorted((ROOT / "examples").iterdir())
        if path.suffix in (".py", ".ipynb")
    },
}
#: Files that are copied as they are.
COPIED = {
    f"benchmarks/plots/{name}": f"explanation/plots/{name}" for name in ("scan.png", "write.png")
} | {f"examples/{path.name}": f"examples/{path.name}" for path in (ROOT / "examples").glob("*.png")}
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=(?:#[^)\s]*)?\))")
FENCE = {".py": "python", ".conf": "properties"}


def on_startup(**_: Any) -> None:
    """Let pages import this repository's `tests`, not a package of that name elsewhere."""
    sys.path.insert(0, str(ROOT))


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each file of `PAGES`."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_page(source)))
    for source, target in COPIED.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links from the path in the repository to the page of the site."""
    at_site = page.file.src_uri
    in_repository = {shown: source for source, shown in PAGES.items()}.get(
        at_site, f"docs/{at_site}"
    )
    folder = posixpath.dirname(in_repository)

    def on_site(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link[0]))
        target = PAGES.get(path) or PAGES.get(path + "/") or COPIED.get(path)
        target = target or path.removeprefix("docs/")
        return posixpath.relpath(target, posixpath.dirname(at_site) or ".")

    return LINK.sub(on_site, completed(markdown))


def _page(source: str) -> str:
    """Return the Markdown of a page that shows a file of the repository."""
    path = ROOT / source
    if path.is_dir():
        return _list_of_examples()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"])
    picture = path.with_suffix(".png")
    shown = f"![What it writes]({picture.name})\n\n" if picture.exists() else ""
    title = f"# {path.name}\n\n`{source}` in the repository.\n\n"
    return f"{title}{shown}```{FENCE[path.suffix]}\n{text}```\n"


def _list_of_examples() -> str:
    lines = ["# Examples", "", "Programs that run as they are. The tests run each of them.", ""]
    lines += [
        f"- [{source}]({posixpath.basename(source)}): {_summary(ROOT / source)}"
        for source in PAGES
        if source.startswith("examples/") and not source.endswith("/")
    ]
    return "\n".join([*lines, ""])


def _summary(path: Path) -> str:
    """Return the first sentence of an example."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        return "".join(json.loads(text)["cells"][0]["source"]).partition("\n\n")[2].split("\n\n")[0]
    return text.split('"""')[1].strip().split("\n\n")[0].replace("\n", " ")


def _cell(cell: dict[str, Any]) -> str:
    """Return the Markdown of a cell of a notebook and of its text output."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    shown = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        text = output.get("text") or output.get("data", {}).get("text/plain", [])
        if text:
            shown.append("```text\n" + "".join(text).rstrip() + "\n```")
    return "\n\n".join(shown)
