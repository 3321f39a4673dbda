"""HOPF: higher order propagation for collective classification, in JAX."""

__version__ = "0.1.0"
