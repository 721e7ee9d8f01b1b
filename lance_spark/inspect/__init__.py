"""What a table consists of, for people: versions, fragments, files, columns, pages and their encodings; nothing is changed."""
