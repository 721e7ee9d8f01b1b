"""Regenerate `lance_spark/proto` from the `.proto` files beside this script.

Run ``python protos/generate.py`` after a change. Needs grpcio-tools 1.62: its generated code has no
check of the protobuf runtime's version and so imports under protobuf 5, 6 and 7. If this
interpreter does not have it, a throw-away environment is made for the run. ``--check`` writes
nothing and fails if the committed code is out of date.

Descriptors are registered as ``lance_spark/proto/<name>.proto``, so that no other package's
``file.proto`` can be in the way, and modules import each other as ``lance_spark.proto.<name>_pb2``.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

REQUIREMENTS = ("grpcio-tools==1.62.*", "setuptools<81")
PACKAGE = "lance_spark/proto"
SOURCES = Path(__file__).resolve().parent
TARGET = SOURCES.parent / PACKAGE

# protoc writes a bare Mapping for the dict form of a message, which strict type checking refuses.
STUB_FIXES = (
    ("_Mapping]", "_Mapping[str, _Any]]"),
    (
        "from typing import ClassVar as _ClassVar",
        "from typing import Any as _Any, ClassVar as _ClassVar",
    ),
)


def stamp(source: Path) -> str:
    """Return the first line of a generated module; it tells which text the module was made from."""
    digest = hashlib.sha256(source.read_text(encoding="utf-8").encode()).hexdigest()
    return f"# {source.name} sha256:{digest}\n"


def interpreter(scratch: Path) -> str:
    """Return a Python that has grpcio-tools 1.62, making one below `scratch` if need be."""
    try:
        if importlib.metadata.version("grpcio-tools").startswith("1.62."):
            return sys.executable
    except importlib.metadata.PackageNotFoundError:
        pass
    home = scratch / "venv"
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    install = [python, "-m", "pip", "install", "-q", *REQUIREMENTS]
    subprocess.run(install, check=True)  # noqa: S603
    return str(python)


def generate(scratch: Path) -> dict[str, str]:
    """Return the generated files by name."""
    staged = scratch / "staged" / PACKAGE
    staged.mkdir(parents=True)
    out = scratch / "out"
    out.mkdir()
    names = sorted(path.name for path in SOURCES.glob("*.proto"))
    for name in names:
        text = (SOURCES / name).read_text(encoding="utf-8")
        staged_text = re.sub(
            r'^import "(?!google/)', f'import "{PACKAGE}/', text, flags=re.MULTILINE
        )
        (staged / name).write_text(staged_text, encoding="utf-8")
    command = [interpreter(scratch), "-m", "grpc_tools.protoc", f"-I{scratch / 'staged'}"]
    command += [f"--python_out={out}", f"--pyi_out={out}", *(f"{PACKAGE}/{name}" for name in names)]
    subprocess.run(command, check=True)  # noqa: S603
    files = {}
    for path in sorted((out / PACKAGE).iterdir()):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".pyi":
            for bare, fixed in STUB_FIXES:
                text = text.replace(bare, fixed)
        else:
            text = stamp(SOURCES / f"{path.stem.removesuffix('_pb2')}.proto") + text
        files[path.name] = text
    return files


def main() -> int:
    """Write or check the generated files; return the exit code."""
    parser = argparse.ArgumentParser(description="Regenerate lance_spark/proto from protos/.")
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(Path(scratch))
    present = {path.name for pattern in ("*_pb2.py", "*_pb2.pyi") for path in TARGET.glob(pattern)}
    stale = sorted(present - files.keys())
    for name, text in files.items():
        path = TARGET / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
    if check:
        for name in stale:
            print(f"out of date: {PACKAGE}/{name}; run python protos/generate.py", file=sys.stderr)
        return 1 if stale else 0
    TARGET.mkdir(exist_ok=True)
    for name in present - files.keys():
        (TARGET / name).unlink()
    for name, text in files.items():
        (TARGET / name).write_text(text, encoding="utf-8")
    print(f"{PACKAGE}: {len(files)} files, {len(stale)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
