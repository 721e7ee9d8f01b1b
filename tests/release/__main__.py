"""`make dist`: build what is published, check it, try it. Exit status 1 if anything is wrong.

| step | what it does |
| --- | --- |
| `version` | compares the version with the changelog, and with the tag of the commit if it has one |
| `build` | builds the source distribution, and from it the wheel, twice; the bytes must be equal |
| `check` | compares the files of the archives with those of the commit; looks for links that PyPI does not have; runs `twine check --strict` |
| `try` | installs the archives in clean environments, and writes and reads a table |
| `sbom` | writes what the package needs, without and with its extras, as CycloneDX |

All archives are in `dist/` then. The wheel is tried on each Python that is found, the source
distribution on the first: both have the same modules. This module runs without another package.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DIST = ROOT / "dist"
PACKAGES = ("lance_spark", "pyspark_lance")
#: Pinned, because the bytes of the archives depend on the backend.
TOOLS = ("build==1.6.1", "cyclonedx-bom==7.5.0", "hatchling==1.33.0", "twine==7.0.0")
#: Minor releases of Python 3 that are looked for.
MINORS = range(11, 15)
#: Extras that are for work on the package itself.
_DEVELOPMENT = frozenset({"bench", "dev", "docs", "fuzz", "test"})
_STEPS = ("version", "build", "check", "try", "sbom")


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it prints; end with its output if it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    return done.stdout


def new_environment(python: str | Path, folder: Path, *requirements: str | Path) -> Path:
    """Make a virtual environment, and return its Python. It has nothing but the requirements."""
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", "--without-pip", folder)
    own = folder / "bin" / "python"
    # This Python's pip: the release of another one may be too old to read the archives.
    run(sys.executable, "-m", "pip", "--python", own, "install", "-q", *requirements)
    return own


def read_version() -> str:
    """Return the version of the package, as a build reads it."""
    text = (ROOT / "lance_spark" / "_version.py").read_text()
    match = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE)
    if match is None:
        sys.exit(
            "lance_spark/_version.py: the version must be three numbers: other clients read it"
        )
    return match[1]


def read_repository() -> str:
    """Return the address of the repository; it is empty as long as there is none."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    repository: str = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    return repository


def version_faults(
    version: str, changelog: str, tags: list[str], changes: str, repository: str
) -> list[str]:
    """Return what contradicts a version.

    Parameters
    ----------
    version
        The version of the package.
    changelog
        The text of the changelog, whose first section is that of the version.
    tags
        The tags of the commit; those that begin with `v` are of releases.
    changes
        What `git status --porcelain` prints.
    repository
        The address that links of the page of the package lead to.
    """
    heading = re.search(r"^## (\S+) \((unreleased|\d{4}-\d\d-\d\d)\)$", changelog, re.MULTILINE)
    faults = []
    if heading is None or heading[1] != version:
        faults.append(f'CHANGELOG.md must begin with the section "## {version} (DATE)"')
    releases = [tag for tag in tags if re.match(r"v\d", tag)]
    if releases and releases != [f"v{version}"]:
        faults.append(f"the commit has the tags {releases}, and the package the version {version}")
    if releases and heading is not None and heading[2] == "unreleased":
        faults.append('the commit has the tag of a release, and CHANGELOG.md says "unreleased"')
    if releases and changes:
        faults.append(f"the checkout has changes that are not in the tag:\n{changes}")
    if releases and not repository:
        faults.append(
            "pyproject.toml has no repository below [tool.hatch.metadata.hooks.custom]: the page of "
            "the package would have no links"
        )
    return faults


def check_version() -> None:
    """End if the version, the changelog and the tag of the commit do not agree."""
    version = read_version()
    tags = run("git", "tag", "--points-at", "HEAD").split()
    changes = run("git", "status", "--porcelain")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    faults = version_faults(version, changelog, tags, changes, read_repository())
    if faults:
        sys.exit("\n".join(faults))
    note = "its tag" if f"v{version}" in tags else f"no release: the commit has no tag v{version}"
    print(f"version {version}: {note}")


def build(tools: Path) -> None:
    """Build the archives twice, the second time in a copy of the checkout, and compare them."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "checkout"
        copy.mkdir()
        # The same files with the times of now, in the order of another file system.
        for name in sorted(run("git", "ls-files").splitlines(), reverse=True):
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
        shutil.copy(ROOT / ".gitignore", copy)
        shutil.rmtree(DIST, ignore_errors=True)
        for checkout, folder in ((ROOT, DIST), (copy, copy / "dist")):
            command = (tools, "-m", "build", "-q", "--no-isolation", "-o", folder, checkout)
            run(*command, cwd=checkout, SOURCE_DATE_EPOCH=epoch)
        for archive in sorted(DIST.iterdir()):
            if archive.read_bytes() != (copy / "dist" / archive.name).read_bytes():
                sys.exit(f"{archive.name}: two builds have other bytes")
            print(f"built {archive.name}: {archive.stat().st_size:,} bytes, the same twice")


def archives() -> tuple[Path, Path]:
    """Return the wheel and the source distribution."""
    archives = (*DIST.glob("*.whl"), *DIST.glob("*.tar.gz"))
    if len(archives) != 2:
        sys.exit(f"{DIST} must have one wheel and one source distribution: {archives}")
    return archives[0], archives[1]


def check(tools: Path) -> None:
    """Compare the files of the archives with those of the commit; check the metadata."""
    wheel, source = archives()
    committed = set(run("git", "ls-files", *PACKAGES).splitlines())
    information = f"lance_spark-{read_version()}.dist-info"
    licences = {f"{information}/licenses/{name}" for name in ("LICENSE", "NOTICE")}
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        metadata = file.read(f"{information}/METADATA").decode()
        extra = {name for name in names - committed if ".dist-info/" not in name}
    if missing := {*committed, *licences} - names:
        sys.exit(f"{wheel.name}: missing {sorted(missing)}")
    if extra:
        sys.exit(f"{wheel.name}: not committed {sorted(extra)}")
    if dead := re.findall(r"\]\((?![a-z]+:|#)[^)]*\)", metadata):
        sys.exit(f"{wheel.name}: links to files that PyPI does not have: {dead}")
    with tarfile.open(source) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    pages = ("LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "SECURITY.md", "hatch_build.py")
    missing = {*committed, *pages} - names
    if missing:
        sys.exit(f"{source.name}: missing {sorted(missing)}")
    print(run(tools, "-m", "twine", "check", "--strict", wheel, source).strip())


def pythons() -> Iterator[tuple[str, Path]]:
    """Yield the release and the path of each Python that is found, one of each minor release."""
    versions = Path.home() / ".pyenv" / "versions"
    for minor in MINORS:
        name = f"python3.{minor}"
        known = [Path(path) for path in [shutil.which(name)] if path]
        for python in [*known, *versions.glob(f"3.{minor}.*/bin/python")]:
            code = "import platform, venv; print(platform.python_version())"
            process = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, check=False
            )
            if process.returncode == 0 and process.stdout.startswith(f"3.{minor}."):
                yield process.stdout.strip(), python
                break
        else:
            print(f"not tried on Python 3.{minor}: not found")


def try_archives(folder: Path) -> None:
    """Install the archives in clean environments, and run the same program in each."""
    wheel, source = archives()
    tried = 0
    for release, python in pythons():
        for archive in (wheel, source)[: 1 if tried else 2]:
            own = new_environment(python, folder / "try", archive)
            shutil.copy(Path(__file__).parent / "installed.py", folder)
            output = run(own, "installed.py", cwd=folder, PYTHONPATH="")
            print(f"{archive.name} on Python {release}: {output.strip().splitlines()[-1]}")
        tried += 1
    if not tried:
        sys.exit("no Python was found to try the archives on")


def write_sboms(tools: Path, folder: Path) -> None:
    """Write what the package needs, without and with its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = sorted(project["optional-dependencies"].keys() - _DEVELOPMENT)
    DIST.mkdir(exist_ok=True)
    for suffix, chosen in (("", ""), ("-extras", f"[{','.join(extras)}]")):
        own = new_environment(sys.executable, folder / "needs", f"{ROOT}{chosen}")
        path = DIST / f"lance_spark-{read_version()}{suffix}.cdx.json"
        options = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible")
        run(tools.parent / "cyclonedx-py", "environment", own, *options, "-o", path)
        components = json.loads(path.read_text())["components"]
        print(f"wrote {path.name}: {len(components)} packages")


def main() -> None:
    """Run the steps."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(prog="python -m tests.release")
    parser.add_argument("--only", choices=_STEPS, help="one of the steps")
    only = parser.parse_args().only
    chosen = {only} if only else set(_STEPS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if "version" in chosen:
            check_version()
        tools = folder / "tools" / "bin" / "python"
        if chosen & {"build", "check", "sbom"}:
            new_environment(sys.executable, folder / "tools", *TOOLS)
        if "build" in chosen:
            build(tools)
        if "check" in chosen:
            check(tools)
        if "try" in chosen:
            try_archives(folder)
        if "sbom" in chosen:
            write_sboms(tools, folder)


if __name__ == "__main__":
    main()
