"""Recordings in a table: written as blobs, listed without their bytes, opened as files.

python examples/blobs.py [folder]
"""

from __future__ import annotations

import io
import math
import shutil
import struct
import sys
import wave
from collections.abc import Iterator

import pyarrow as pa

import lance_spark

RATE = 22_050
BLOB = {"lance-encoding:blob": "true"}
SCHEMA = pa.schema(
    [pa.field("note", pa.string()), pa.field("sound", pa.large_binary(), metadata=BLOB)]
)


def recording(pitch: float, seconds: float) -> bytes:
    """A tone as a WAV file."""
    count = int(RATE * seconds)
    tone = (int(20_000 * math.sin(2 * math.pi * pitch * at / RATE)) for at in range(count))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        out.writeframes(struct.pack(f"<{count}h", *tone))
    return file.getvalue()


def recordings() -> Iterator[pa.RecordBatch]:
    """One batch for each, so that no more than one is in memory."""
    for number, note in enumerate(["A", "B", "C", "D", "E", "F", "G"]):
        sound = recording(440 * 2 ** (number / 7), 0.2 * number)
        yield pa.record_batch([pa.array([note]), pa.array([sound], pa.large_binary())], SCHEMA)


def main(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    dataset = lance_spark.write_dataset(recordings(), path, schema=SCHEMA)

    # A scan gives where the bytes are: how long each recording is costs a few bytes of reading.
    for row in dataset.to_table().to_pylist():
        print(f"{row['note']}: {row['sound']['size']:,} bytes")

    # A file of one of them reads what is asked of it.
    (file,) = dataset.take_blobs("sound", indices=[5])
    assert file is not None
    with file, wave.open(file) as sound:
        print(f"F lasts {sound.getnframes() / sound.getframerate():.1f} s")

    # All bytes, in batches that are small enough.
    batches = dataset.to_batches(["sound"], blob_handling="all_binary")
    total = sum(len(value.as_buffer()) for batch in batches for value in batch["sound"])
    print(f"{total:,} bytes in all")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "recordings.lance")
