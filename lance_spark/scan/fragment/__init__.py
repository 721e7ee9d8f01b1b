"""The reader of one fragment: which rows survive, and how their columns are decoded."""
