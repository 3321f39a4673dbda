"""Updates of a graph, in a file that outlives the process."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from hopf_jax.graph import Graph
from hopf_jax.results import Result
from hopf_jax.runtime import AppendedLines, digest, held_folder

_UPDATES = "updates.log"


class Journal:
    """Updates in the order in which they were made, for one model and one graph.

    Args:
      folder: Made if it is missing. Only one process at a time may use it.
      owner: What the updates are of; see `identify`.
    """
