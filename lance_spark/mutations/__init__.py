"""Mutations: changes of rows, columns and files, each planned, run as tasks, and committed once."""
