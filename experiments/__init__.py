"""Experiments: one command a table, one a figure."""
