"""Encodings of file version 2.0."""
