"""Graphs in parts, and distributed jobs whose processes hold some of them each."""

from hopf_jax.parts.assignment import METHODS
from hopf_jax.parts.manifest import Part, Parts, open_parts
from hopf_jax.parts.partitioning import partition
from hopf_jax.parts.result import PartsResult
from hopf_jax.parts.tables import import_tables
from hopf_jax.parts.training import fit_parts
