"""Indexes of vectors: trained, written, extended and merged."""
