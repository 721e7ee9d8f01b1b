"""The container of file version 0.1: reader, writer, dictionaries and page statistics."""
