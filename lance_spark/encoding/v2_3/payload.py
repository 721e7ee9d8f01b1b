"""Tells which compressive encodings have a buffer: a message can describe all values itself."""

from __future__ import annotations

from lance_spark.proto import encodings_v2_1_pb2 as pb


def has_payload(encoding: pb.CompressiveEncoding) -> bool:
    """Whether an encoding of a sequence has a buffer."""
    compression = encoding.WhichOneof("compression")
    if compression == "delta":
        return has_payload(encoding.delta.deltas)
    if compression == "rle":
        return has_payload(encoding.rle.values) or has_payload(encoding.rle.run_lengths)
    if compression == "dictionary":
        return has_payload(encoding.dictionary.indices) or has_payload(encoding.dictionary.items)
    return compression not in ("constant", "range")
