"""The archives that are published: how they are built and what is checked of them."""
