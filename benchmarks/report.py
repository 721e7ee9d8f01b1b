"""The command lines of the benchmarks, and their tables of results."""

from __future__ import annotations

import argparse
from pathlib import Path

README = Path(__file__).parent / "README.md"


def argument_parser(
    doc: str | None,
    *,
    data: str | None = "demo-data/benchmarks",
    scale: bool = True,
    rounds: int | None = 3,
    update: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser of the options that many benchmarks share.

    Parameters
    ----------
    doc : str or None
        The docstring of the benchmark. The help text shows its first paragraph.
    data : str or None
        The default of `--data`. None leaves the option out, as for `rounds`.
    scale : bool
        Whether the benchmark has `--scale`.
    rounds : int or None
        The default of `--rounds`.
    update : bool
        Whether the benchmark has `--update`.
    """
    description = " ".join((doc or "").partition("\n\n")[0].split())
    parser = argparse.ArgumentParser(description=description)
    if data is not None:
        parser.add_argument("--data", type=Path, default=Path(data), help="folder of the tables")
    if scale:
        parser.add_argument("--scale", type=float, default=1.0, help="factor of all row counts")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds)
    if update:
        parser.add_argument("--update", action="store_true", help="put the table into README.md")
    return parser


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def put_into_readme(name: str, text: str) -> None:
    """Replace the table between the two comments of README.md that name a benchmark."""
    put_into_page(README, name, text)


def put_into_page(page: Path, name: str, text: str) -> None:
    """Replace the text between the comments `<!-- name -->` and `<!-- end of name -->`."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    old = page.read_text()
    if begin not in old or end not in old:
        raise SystemExit(f"{page} has no lines {begin.strip()!r} and {end.strip()!r}; add them")
    before, _, rest = old.partition(begin)
    page.write_text(f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}")
