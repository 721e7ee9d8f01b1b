"""The reader of one fragment: it selects rows, and decodes their columns."""
