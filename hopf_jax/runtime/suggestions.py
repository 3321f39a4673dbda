"""Hints in error messages about names that do not exist."""

import difflib
import itertools
from collections.abc import Iterable
from typing import Any

_MOST_COMPARED = 20_000  # Comparing a name with millions of others takes minutes.
_MOST_LISTED = 10


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Return "Did you mean 'x'?" for the known name most like this one, or "".

    >>> did_you_mean("gnc", ["bl-node", "gcn"])
    "Did you mean 'gcn'?"
    >>> did_you_mean("something else", ["bl-node", "gcn"])
    ''
    """
    some = list(itertools.islice(known, _MOST_COMPARED))
    texts = {str(each): each for each in reversed(some)}
    lower = {text.lower(): text for text in texts}
    text = str(name)
    near = difflib.get_close_matches(text, texts, 1)
    near = near or [
        lower[each] for each in difflib.get_close_matches(text.lower(), lower, 1)
    ]
    return f"Did you mean {texts[near[0]]!r}?" if near else ""


def suggest(name: Any, known: Iterable[Any], listed: str = "Known") -> str:
    """Return a hint: the known name most like this one, or the first known names.

    >>> suggest("x", ["bl-node", "gcn"])
    "Known: 'bl-node', 'gcn'."
    """
    some = list(itertools.islice(known, _MOST_COMPARED))
    shown = ", ".join(map(repr, some[:_MOST_LISTED]))
    more = ", ..." * (len(some) > _MOST_LISTED)
    return did_you_mean(name, some) or f"{listed}: {shown or 'none'}{more}."
