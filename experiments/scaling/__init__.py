"""Scaling: time and memory by hops, nodes, processes and hosts."""
