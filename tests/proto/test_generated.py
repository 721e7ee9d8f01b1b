"""The generated code matches the `.proto` files."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import pytest

from tests.proto.containers import MODULES

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted((REPOSITORY / "protos").glob("*.proto"))
GENERATED = REPOSITORY / "lance_spark" / "proto"


def test_sources_and_modules_correspond() -> None:
    expected = {f"{path.stem}_pb2.{ending}" for path in SOURCES for ending in ("py", "pyi")}
    assert {path.name for path in GENERATED.glob("*_pb2.py*")} == expected


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_modules_match_their_sources(source: Path) -> None:
    digest = hashlib.sha256(source.read_text(encoding="utf-8").encode()).hexdigest()
    with (GENERATED / f"{source.stem}_pb2.py").open(encoding="utf-8") as module:
        first = module.readline().strip()
    assert first == f"# {source.name} sha256:{digest}", "run python protos/generate.py"


def test_generation_is_reproducible() -> None:
    try:
        installed = version("grpcio-tools")
    except PackageNotFoundError:
        installed = "none"
    if not installed.startswith("1.62."):
        pytest.skip(
            f"needs grpcio-tools 1.62 (installed: {installed}); the hashes are checked anyway"
        )
    command = [sys.executable, str(REPOSITORY / "protos" / "generate.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_descriptor_names_are_unique_to_this_package(module: ModuleType) -> None:
    assert module.DESCRIPTOR.name.startswith("lance_spark/proto/")
    assert module.DESCRIPTOR.package.startswith("lance.")
