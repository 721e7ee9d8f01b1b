"""What a table consists of, for people: versions, fragments, files, columns, pages and their encodings; nothing is changed."""

#: Versions that are told, unless another number is asked for.
DEFAULT_VERSIONS = 20
#: Data files whose ends are read, unless another number is asked for.
DEFAULT_FILES = 64
