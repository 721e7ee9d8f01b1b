"""Compressive encodings of file versions 2.1 and 2.2, one file each."""
