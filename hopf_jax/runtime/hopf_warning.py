"""`HopfWarning`: the category of warnings about data and training."""

import contextlib
import pathlib
import sys
import warnings
from collections.abc import Iterable

# Where frames are not the user's: ours, and those of context managers around ours.
_PASSED_OVER = (str(pathlib.Path(__file__).parents[1]), contextlib.__file__)


class HopfWarning(UserWarning):
    """Warning about data or training that is likely to make results bad.

    Silence it with `warnings.simplefilter("ignore", hopf_jax.HopfWarning)`, or turn it
    into an error with "error".
    """


def warn_once(messages: Iterable[str]) -> None:
    """Emit each message once, as from the line of the user's code that called us."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(
        _PASSED_OVER
    ):
        frame, level = frame.f_back, level + 1
    for message in dict.fromkeys(messages):
        warnings.warn(message, HopfWarning, stacklevel=level)
