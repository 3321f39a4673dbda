"""Benchmarks: a training epoch here and in PyTorch Geometric, and its parts."""
