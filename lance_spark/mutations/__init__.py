"""Mutations: changes of rows, columns and files. Each is planned, run as tasks, and committed
once.
"""
