"""The command line `hopf`: the functions of `hopf_jax`, on tables in files."""

from hopf_jax.cli.commands import main
