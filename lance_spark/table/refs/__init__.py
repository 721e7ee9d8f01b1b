"""References: tags, branches and clones."""
