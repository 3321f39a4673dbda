"""Collective classification on graphs in JAX: HOPF and its kernels."""

__version__ = "0.1.0"
