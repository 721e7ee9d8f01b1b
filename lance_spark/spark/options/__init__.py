"""Options of reads and writes: parsed and checked once."""
