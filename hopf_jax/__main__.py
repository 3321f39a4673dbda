"""`python -m hopf_jax`: the same as `hopf`."""

import sys

from hopf_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
