"""File version 2.3, read only: structure and values are stored separately. The version is not
stable yet.
"""
