"""Hints in error messages about names that do not exist."""

import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_MOST_COMPARED = 20_000  # Comparing a name with millions of others takes minutes.
_MOST_LISTED = 10


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """Return "Did you mean 'x'?" for the known name most like this one, or "".

    >>> did_you_mean("gnc", ["bl-node", "gcn"])
    "Did you mean 'gcn'?"
    >>> did_you_mean("gnc", ["sgc", "gcn"])
    "Did you mean 'gcn'?"
    >>> did_you_mean("something else", ["bl-node", "gcn"])
    ''
    """
    some = list(itertools.islice(known, _MOST_COMPARED))
    texts = {str(each): each for each in reversed(some)}
    lower = {text.lower(): text for text in texts}
    text = str(name)
    # Swapped letters first, which difflib takes for a removal and an insertion.
    near = [each for each in texts if sorted(each) == sorted(text)]
    near = near or difflib.get_close_matches(text, texts, 1)
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


def answering_typos(
    function: Callable[P, R],
    explain: Callable[[str], str] = lambda name: "",
    passed_on: Iterable[str] = (),
) -> Callable[P, R]:
    """Return the function, which answers an unknown keyword with the one that is meant.

    Args:
      function: A function. If it takes `**keywords`, say which in `passed_on`.
      explain: Returns what to say of a keyword where that is known, else "".
      passed_on: Keywords that it passes on to another function.

    >>> answering_typos(suggest)("x", knwon=[])
    Traceback (most recent call last):
    TypeError: suggest() has no argument 'knwon'. Did you mean 'known'?
    """
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in ("self", "cls") and parameter.kind != parameter.VAR_KEYWORD
    ]
    known += passed_on

    @functools.wraps(function)
    def answering(*arguments: P.args, **keywords: P.kwargs) -> R:
        for name in keywords:
            if name not in known:
                called = function.__qualname__.removesuffix(".__init__")
                hint = explain(name) or suggest(name, known, "It has")
                raise TypeError(f"{called}() has no argument {name!r}. {hint}")
        return function(*arguments, **keywords)

    return answering


class AnsweringTypos:
    """Base of classes that answer an unknown attribute with the one that is meant."""

    # Other names for what there is, by what users of other libraries call it.
    _CALLED: ClassVar[dict[str, str]] = {}

    if not TYPE_CHECKING:  # A type checker would accept every name.

        def __getattr__(self, name):
            kind = type(self)
            said = f"{kind.__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                called = kind._CALLED.get(name)
                public = [each for each in dir(self) if not each.startswith("_")]
                hint = f"Use {called}." if called else did_you_mean(name, public)
                said += f". {hint}" if hint else ""
            # Without a name Python adds no hint of its own.
            raise AttributeError(said, name=None, obj=self)
