"""Experiments: one command per table or figure."""
