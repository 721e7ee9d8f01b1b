"""Encodings of file versions 2.1 and 2.2, which share their messages."""
