"""Single data files without a table: by pylance's names, as in its module `lance.file`."""
