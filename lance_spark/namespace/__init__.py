"""Namespaces: tables by name, in a folder."""
