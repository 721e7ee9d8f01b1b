"""The generated code works with all supported protobuf runtimes."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

# Prints the runtime, and messages of every kind of field after a round trip.
SCRIPT = """
import sys
import google.protobuf
from google.protobuf.internal import api_implementation
from google.protobuf.unknown_fields import UnknownFieldSet
from lance_spark.proto import (
    encodings_v2_0_pb2, encodings_v2_1_pb2, encodings_v2_3_pb2, file2_pb2, file_pb2, index_old_pb2, index_pb2,
    rowids_pb2, table_pb2, transaction_pb2,
)

def again(message):
    data = message.SerializeToString(deterministic=True)
    parsed = type(message).FromString(data)
    assert parsed == message
    print(data.hex())
    return parsed

manifest = table_pb2.Manifest(version=7, index_section=0, config={"b": "2", "a": ""})
manifest.timestamp.seconds = 1
manifest.schema_metadata["key"] = b"\\xff"
manifest.fields.add(name="x", id=1, type=file_pb2.Field.LEAF)
manifest.fragments.add(id=1, physical_rows=2**63).column_row_ids.SetInParent()
manifest = again(manifest)
assert manifest.HasField("index_section") and not manifest.HasField("transaction_section")
assert manifest.fragments[0].WhichOneof("row_id_sequence") == "column_row_ids"

index = table_pb2.IndexMetadata()
index.index_details.Pack(index_old_pb2.ZoneMapIndexDetails(rows_per_zone=3), "")
assert index.index_details.type_url == "/lance.table.ZoneMapIndexDetails"
details = index_old_pb2.ZoneMapIndexDetails()
assert again(index).index_details.Unpack(details) and details.rows_per_zone == 3

txn = transaction_pb2.Transaction(read_version=1, transaction_properties={"k": "v"})
txn.update_config.field_metadata_updates[-3].update_entries.add(key="k", value="")
assert again(txn).update_config.field_metadata_updates[-3].update_entries[0].HasField("value")

page = encodings_v2_1_pb2.PageLayout()
page.mini_block_layout.value_compression.rle.values.flat.bits_per_value = 64
page.mini_block_layout.layers.append(encodings_v2_1_pb2.REPDEF_NULLABLE_ITEM)
again(page)
again(encodings_v2_3_pb2.PlanarLayout(values={"constant": {"scalar": b"x"}}))
again(encodings_v2_0_pb2.ArrayEncoding(struct={}))
again(rowids_pb2.RowIdSequence(segments=[{"range": {"start": 1, "end": 9}}]))
again(index_pb2.IVF(loss=0.5, lengths=[1, 2]))
later = file2_pb2.Encoding.FromString(b"\\xf8\\x7f\\x01")
assert [field.field_number for field in UnknownFieldSet(later)] == [2047]
assert later.SerializeToString() == b"\\xf8\\x7f\\x01"
print(google.protobuf.__version__, api_implementation.Type(), file=sys.stderr)
"""

EXPECTED = """\
0a0708021201781801120f08012080808080808080808001620018072a080a036b65791201ff30003a0208018201050a016112008201060a0162120132
32260a202f6c616e63652e7461626c652e5a6f6e654d6170496e64657844657461696c7312020803
080122060a016b120176f206164a1408fdffffffffffffffff0112070a050a016b1200
0a0d1a0842060a040a020840320103
12051a030a0178
2a00
0a060a0408011009
1a02010229000000000000e03f
"""


def run(implementation: str, *path: Path) -> tuple[str, list[str]]:
    """Run the script with packages only from `path`; return its output and its runtime."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (*path, REPOSITORY))),
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation,
    }
    command = [sys.executable, "-S", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.splitlines()[-1].split()


@pytest.mark.slow_env
@pytest.mark.parametrize("version", ["5.29.5", "5.*", "6.31.1", "6.*", "7.*"])
def test_runtime(tmp_path: Path, version: str) -> None:
    if find_spec("pip") is None:
        pytest.skip("this environment has no pip to install other protobuf versions with")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--target", str(tmp_path), f"protobuf=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found" in done.stderr:
        pytest.skip(f"the package index in use does not have protobuf {version}")
    assert done.returncode == 0, done.stderr
    printed, (native, implementation) = run("upb", tmp_path)
    printed_pure, (pure, implementation_pure) = run("python", tmp_path)
    major = version.partition(".")[0]
    assert (native.partition(".")[0], implementation, pure, implementation_pure) == (
        major,
        "upb",
        native,
        "python",
    )
    assert printed == printed_pure == EXPECTED
