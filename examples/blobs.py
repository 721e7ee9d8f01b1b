"""Sound recordings in a table: written as blobs, listed without their bytes, opened as files.

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
    """Return a tone as the bytes of a WAV file."""
    count = int(RATE * seconds)
    frames = (int(20_000 * math.sin(2 * math.pi * pitch * n / RATE)) for n in range(count))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, RATE, 0, "NONE", ""))
        sound.writeframes(struct.pack(f"<{count}h", *frames))
    return file.getvalue()


def recordings() -> Iterator[pa.RecordBatch]:
    """Yield a batch for each recording, so that only one recording is in memory at a time."""
    for number, note in enumerate(["A", "B", "C", "D", "E", "F", "G"]):
        sound = recording(440 * 2 ** (number / 7), 0.2 * number)
        yield pa.record_batch([pa.array([note]), pa.array([sound], pa.large_binary())], SCHEMA)


def main(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
    dataset = lance_spark.write_dataset(recordings(), path, schema=SCHEMA)

    # A scan returns the position and the size of each recording. It does not read the recording.
    for row in dataset.to_table().to_pylist():
        print(f"{row['note']}: {row['sound']['size']:,} bytes")

    # A recording is opened as a file. The file reads only the bytes that the program asks for.
    (file,) = dataset.take_blobs("sound", indices=[5])
    assert file is not None
    with file, wave.open(file) as sound:
        print(f"F lasts {sound.getnframes() / sound.getframerate():.1f} s")

    # A scan can also return the bytes of all recordings, batch by batch.
    batches = dataset.to_batches(["sound"], blob_handling="all_binary")
    total = sum(len(value.as_buffer()) for batch in batches for value in batch["sound"])
    print(f"{total:,} bytes in all")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "recordings.lance")
