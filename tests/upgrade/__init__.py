"""What an earlier state of the package wrote works in this one: tables, checkpoints, plans."""
