"""Names of nodes: any hashable values, as a user's own data calls them."""

import json
import numbers
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hopf_jax.config import as_python
from hopf_jax.graph.frames import align, is_frame, is_series
from hopf_jax.graph.mistakes import refuse_whole_graph
from hopf_jax.graph.validation import check_ids, check_nodes, to_array
from hopf_jax.suggestions import did_you_mean

Name = Hashable
_NESTING = 8  # Of tuples within tuples, in files.


class NodeIndex:
    """Finds nodes by what a user calls them.

    A node is called by its name, if nodes have names, or by its id, 0 to N - 1. Where
    names are whole numbers themselves, whole numbers are names.

    Args:
      names: N names, or () if nodes have none.
      num_nodes: Number of nodes, N.
    """

    def __init__(self, names: Sequence[Name], num_nodes: int) -> None:
        self.names, self.num_nodes = names, num_nodes
        self._place = {name: i for i, name in enumerate(names)}
        self._numbered = any(isinstance(name, numbers.Number) for name in names)

    def find(self, nodes: Any, what: str = "nodes") -> np.ndarray:
        """Return ids [n] of nodes.

        Args:
          nodes: Names, ids or a mask [N]; or one name.
          what: What they are, for the message.
        """
        if is_series(nodes) and nodes.dtype == bool:
            order = self.names or range(self.num_nodes)
            nodes = align(nodes, order, what).to_numpy()
        refuse_whole_graph(nodes, what)
        values = self._as_names(nodes)
        if values is None:
            array = to_array(nodes, what)
            if array.dtype.kind in "OUST" and array.size:
                self._refuse(array.reshape(-1).tolist()[0], what)
            if array.dtype == bool:
                return np.flatnonzero(check_nodes(array, self.num_nodes, what))
            return check_ids(array, self.num_nodes, what)
        ids = [self.place(value) for value in values]
        for place, (found, value) in enumerate(zip(ids, values, strict=True)):
            if found < 0:
                self._refuse(value, f"{what}[{place}]")
        return np.array(ids, np.int64)

    def find_one(self, node: Any, what: str = "node") -> int:
        """Return the id of one node."""
        if self.names and (found := self.place(node)) >= 0:
            return found
        whole = isinstance(node, int | np.integer) and not isinstance(node, bool)
        if self.names or isinstance(node, str):
            self._refuse(node, what)
        if not whole:
            raise ValueError(f"{what} is {node!r}; give the name or id of one node.")
        return int(check_ids([node], self.num_nodes, what)[0])

    def call(self, ids: Iterable[int]) -> list[Any]:
        """Return what nodes are called: their names, or else their ids."""
        if not self.names:
            return [int(i) for i in ids]
        return [self.names[i] for i in ids]

    def _as_names(self, nodes: Any) -> list[Any] | None:
        """Return a list of values to look up; None if they are ids or a mask."""
        if not self.names:
            return None
        if isinstance(nodes, Hashable) and self.place(nodes) >= 0:
            return [nodes]  # One name.
        if isinstance(nodes, str | bytes) or not isinstance(nodes, Iterable):
            return [nodes]
        values = nodes.tolist() if hasattr(nodes, "tolist") else list(nodes)
        kinds = {type(value) for value in values}
        if kinds <= {bool, np.bool_} and not kinds & set(map(type, self.names)):
            return None
        if not self._numbered and all(issubclass(kind, int) for kind in kinds):
            return None
        return values

    def place(self, value: Any, *, ids: bool = True) -> int:
        """Return the id of what a named node is called; -1 if there is none.

        Args:
          value: Anything.
          ids: Accept the id too, unless names are numbers.
        """
        try:
            found = self._place.get(value, -1)
        except TypeError:  # Not hashable.
            return -1
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if found < 0 and ids and whole and self.names and not self._numbered:
            return int(value) if 0 <= value < self.num_nodes else -1
        return found

    def _refuse(self, value: Any, what: str) -> None:
        if not self.names:
            raise ValueError(
                f"{what} is {value!r}, but the nodes of this graph have no names; give "
                f"ids, 0 to {self.num_nodes - 1}. Graph.from_networkx, from_pandas and "
                "from_edges(node_names=...) keep names."
            )
        hint = did_you_mean(value, self.names)
        few = ", ".join(map(repr, self.names[:3])) + ", ..." * (len(self.names) > 3)
        raise ValueError(
            f"{what} is {value!r}, which is not a node of the graph. "
            + (hint or f"The {self.num_nodes} nodes are {few}.")
        )


def check_names(names: Any, what: str = "node_names") -> tuple[Name, ...]:
    """Return names as a tuple; raise `ValueError` for missing and repeated ones."""
    values = names.tolist() if hasattr(names, "tolist") else names
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ValueError(f"{what} is a {type(values).__name__}; give a list of names.")
    values = [as_python(v) for v in values]
    seen: set[Name] = set()
    for i, name in enumerate(values):
        try:
            again = name in seen
        except TypeError:
            raise ValueError(
                f"{what}[{i}] is {name!r}; a name must be hashable, as text, numbers "
                "and tuples are."
            ) from None
        if is_missing(name):
            raise ValueError(f"{what}[{i}] is {name!r}. Give every node a name.")
        if again:
            first = values.index(name)
            raise ValueError(
                f"{what} holds {name!r} twice, at {first} and {i}. Give every node a "
                "name of its own, and one row."
            )
        seen.add(name)
    return tuple(values)


def is_missing(name: Any) -> bool:
    """Return whether this is None, NaN or a missing value of pandas."""
    return (
        name is None
        or type(name).__name__ in ("NAType", "NaTType")
        or (isinstance(name, float) and name != name)
    )


def are_ids(names: Sequence[Name]) -> bool:
    """Return whether these are the ids 0 to N - 1, in any order."""
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in names)
    return whole and set(names) == set(range(len(names)))


def names_of_edges(senders: Any, receivers: Any, others: Iterable[Name] = ()) -> list:
    """Return the ends of edges in the order in which they first occur, then others.

    Raises:
      ValueError: An end is no name; or one of the others looks like an end, but is of
        another type, as the text "1" and the number 1.
    """
    ends = [_values(senders), _values(receivers)]
    pairs = zip(*ends, strict=False)  # Other lengths are refused later.
    try:
        found = dict.fromkeys(end for pair in pairs for end in pair)
    except TypeError as error:
        raise ValueError(
            f"The ends of edges are names, which must be hashable, as text, numbers "
            f"and tuples are: {error}."
        ) from None
    own = {str(end): end for end in found}
    for other in others:
        if other not in found and str(other) in own:
            raise ValueError(
                f"The labels name {other!r}, but the edges {own[str(other)]!r}: one is "
                "text, the other a number. Write nodes in both alike."
            )
    return list(found | dict.fromkeys(others))


def name_nodes(
    senders: Any, receivers: Any, features: Any, labels: Any, given: Any
) -> tuple[tuple[Name, ...], Any, Any]:
    """Return names of nodes, () if they have none, and the ends of edges as ids.

    Names are given; or the index of a table of features; or the ends of the edges, if
    these are not whole numbers, and the keys of labels.

    Args:
      senders, receivers, features, labels: As in `Graph.from_edges`.
      given: Its argument `node_names`.
    """
    tabled = is_frame(features) or is_series(features)
    what = "node_names"
    if given is not None:
        names = list(check_names(given))
        if not names:
            return (), senders, receivers
    elif tabled and not are_ids(index := features.index.tolist()):
        what = "the index of features"
        names = list(check_names(index, what))
    elif not tabled and _hold_names(senders, receivers):
        for name, values in (("features", features), ("labels", labels)):
            if values is not None and not _has_keys(values):
                raise ValueError(
                    f"The ends of edges are names, such as {_first(senders)!r}, so the "
                    f"rows of {name} need names too. Give {name} as a table with the "
                    "names as its index, or node_names=[...] in the order of the rows."
                )
        names = list(check_names(names_of_edges(senders, receivers, _keys(labels))))
    else:
        return (), senders, receivers
    index = NodeIndex(names, len(names))
    one = _ids_of_ends(senders, index, "senders", what)
    other = _ids_of_ends(receivers, index, "receivers", what)
    return () if names == list(range(len(names))) else tuple(names), one, other


def call_ends(senders: Any, receivers: Any, names: Any) -> tuple[Any, Any]:
    """Return ends of edges that are ids by their names, if nodes are to have names."""
    if names is None:
        return senders, receivers
    called = np.empty(len(names), object)
    called[:] = list(names)
    one, other = (
        called[check_ids(ends, len(names), name)]
        for name, ends in (("senders", senders), ("receivers", receivers))
    )
    return one, other


def _ids_of_ends(ends: Any, index: NodeIndex, name: str, what: str) -> np.ndarray:
    values = _values(ends)
    # Ids could be meant beside names that are given, but not beside those of an index.
    ids = [index.place(value, ids=what == "node_names") for value in values]
    if -1 in ids:
        at = ids.index(-1)
        hint = did_you_mean(values[at], index.names)
        raise ValueError(
            f"{name}[{at}] is {values[at]!r}, which is not in {what} "
            f"({index.names[0]!r}, ...). {hint}".rstrip()
        )
    return np.array(ids, np.int64)


def _values(ends: Any) -> list[Any]:
    return ends.tolist() if hasattr(ends, "tolist") else list(ends)


def _hold_names(*ends: Any) -> bool:
    """Return whether the ends of edges are something else than numbers."""
    for each in ends:
        array = each if hasattr(each, "dtype") else to_array(each, "senders")
        if np.ndim(array) != 1 or getattr(array.dtype, "kind", "O") not in "OUST":
            continue
        if not all(isinstance(end, numbers.Number) for end in _values(array)):
            return True
    return False


def _first(ends: Any) -> Any:
    return next(iter(_values(ends)), None)


def _has_keys(values: Any) -> bool:
    return isinstance(values, Mapping) or is_frame(values) or is_series(values)


def _keys(labels: Any) -> list[Any]:
    if labels is None:
        return []
    return list(labels) if isinstance(labels, Mapping) else labels.index.tolist()


# Names in files


def names_to_json(names: Sequence[Name]) -> list[Any]:
    """Return names as plain data that `names_from_json` reads.

    Text, numbers, truth values and tuples of these keep their types; anything else
    becomes text. Names are left out, [], if they are the same text then.
    """
    encoded = [_encode(name) for name in names]
    distinct = {json.dumps(name) for name in encoded}
    return encoded if len(distinct) == len(encoded) else []


def names_from_json(data: Any, num_nodes: int) -> tuple[Name, ...]:
    """Return names from plain data; raise `ValueError` unless they are N names or 0."""
    if not isinstance(data, list) or len(data) not in (0, num_nodes):
        raise ValueError(f"node_names are not those of {num_nodes} nodes")
    return check_names([_decode(name, _NESTING) for name in data])


def _encode(name: Any) -> Any:
    if isinstance(name, tuple):
        return [_encode(part) for part in name]
    plain = type(name) in (str, int, float, bool)
    return name if plain else str(name)


def _decode(name: Any, depth: int) -> Name:
    if isinstance(name, list) and depth:
        return tuple(_decode(part, depth - 1) for part in name)
    if not isinstance(name, str | int | float | bool):
        raise ValueError(f"a name of a node is a {type(name).__name__}")
    return name
