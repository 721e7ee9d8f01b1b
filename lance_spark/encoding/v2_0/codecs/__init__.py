"""Encodings of pages of file version 2.0, one file each."""
