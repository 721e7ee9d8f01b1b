"""Stores of bytes: local disks, every store behind fsspec, and the atomic creation that commits
need.
"""
