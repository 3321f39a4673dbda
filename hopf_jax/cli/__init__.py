"""The command line `hopf`."""

from hopf_jax.cli.commands import main
