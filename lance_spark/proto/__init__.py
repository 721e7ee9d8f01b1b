"""The wire format: protobuf code generated from `protos/` by `protos/generate.py`."""
