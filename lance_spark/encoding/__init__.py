"""Page encodings: one file each, grouped by the file version that introduced them."""
