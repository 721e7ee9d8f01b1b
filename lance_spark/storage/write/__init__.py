"""Ways to write files to stores: whole, or in parts."""
