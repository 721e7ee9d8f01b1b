"""Pruning: fragments and row ranges that cannot hold a matching row are left out."""
