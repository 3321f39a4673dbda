"""Likely mistakes of a new user, and the message that each gets.

`python -m tests.project.test_mistakes` writes the page that lists them.
"""

import functools
import pathlib
import re
import tempfile
import warnings

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import hopf_jax
from hopf_jax import Graph, HOPFClassifier, fit

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "mistakes.md"
HEAD = """# Likely mistakes

What likely mistakes are answered. `tests/project/test_mistakes.py` makes each of them,
and compares this page with what it was told. `club` is a networkx graph of six people
with the attribute `team`, `graph` the `Graph` made of it, and `result` its fit.

| mistake | answer |
|---|---|
"""
FOLDER = "/tmp/no-such-folder"


@functools.cache
def club():
    network = nx.Graph([("Ann", "Bob"), ("Bob", "Cem"), ("Cem", "Dee"),
                        ("Dee", "Eve"), ("Eve", "Fay")])  # fmt: skip
    teams = dict(zip(network, ["red"] * 3 + ["blue"] * 3, strict=True))
    nx.set_node_attributes(network, teams, "team")
    return network


@functools.cache
def graph():
    return Graph.from_networkx(club(), np.eye(6), "team")


@functools.cache
def result():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit(graph(), "gcn", folds=2, max_epochs=2, min_epochs=1, progress=False)


# The call as a user would write it, and what makes it.
MISTAKES = {
    'fit(graph, "gnc")': lambda: fit(graph(), "gnc"),
    "fit(graph, hiden_size=8)": lambda: fit(graph(), hiden_size=8),
    "fit(graph, dropout=50)": lambda: fit(graph(), dropout=50),
    "fit(club)": lambda: fit(club()),
    "fit(adjacency_matrix)": lambda: fit(graph().adjacency),
    "fit(graph_without_labels)": lambda: fit(Graph.from_networkx(club())),
    'Graph.from_networkx(club, labels="Team")': lambda: Graph.from_networkx(
        club(), labels="Team"
    ),
    "Graph.from_edges(edge_index, features)": lambda: Graph.from_edges(
        np.array([[0, 1, 2], [1, 2, 3]]), np.eye(4)
    ),
    "ids from 1 to N": lambda: Graph.from_edges([1, 2, 3], [2, 3, 4], np.eye(4)),
    'Graph.from_edges(["Ann"], ["Bob"], matrix)': lambda: Graph.from_edges(
        ["Ann"], ["Bob"], np.eye(2)
    ),
    "one feature is NaN": lambda: Graph.from_edges([0], [1], [[1.0], [np.nan]]),
    "features of the wrong shape": lambda: Graph.from_edges(
        [0], [1], np.ones((2, 5)), ["a", "b", "a", "b", "a"]
    ),
    "a name that is not in the table of nodes": lambda: Graph.from_pandas(
        pd.DataFrame({"source": ["Ann"], "target": ["Bop"]}),
        pd.DataFrame({"age": [30, 40]}, index=["Ann", "Bob"]),
    ),
    'graph.with_split(train=["Bob"], test=["Bob"])': lambda: graph().with_split(
        train=["Bob"], test=["Bob"]
    ),
    "a mask of 0 and 1": lambda: graph().with_split(train=[1, 0, 1, 0, 1, 0]),
    "split_graph(graph, train=80)": lambda: hopf_jax.split_graph(graph(), train=80),
    'result.predict(["Bop"])': lambda: result().predict(["Bop"]),
    'result.explain("Bob", label="green")': lambda: result().explain(
        "Bob", label="green"
    ),
    'load_dataset("coar")': lambda: hopf_jax.load_dataset("coar"),
    f'result.save("{FOLDER}/club.npz")': lambda: result().save(f"{FOLDER}/club.npz"),
    "load(file_of_something_else)": lambda: _load_text(),
    "HOPFClassifier(club).fit(names, teams)": lambda: HOPFClassifier(club()).fit(
        ["Ann"], ["red"]
    ),
}


def _load_text():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "notes.txt"
        path.write_text("not a result")
        try:
            hopf_jax.load(path)
        except ValueError as error:
            raise ValueError(str(error).replace(folder, "...")) from None


def answer(mistake):
    """What a mistake is answered."""
    with pytest.raises((ValueError, OSError)) as caught:
        MISTAKES[mistake]()
    return f"`{caught.type.__name__}`: {caught.value}"


def row(mistake):
    cells = [f"`{mistake}`" if "(" in mistake else mistake, answer(mistake)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_page_says_what_a_mistake_is_answered(mistake):
    assert row(mistake) in PAGE.read_text()


def test_the_page_lists_all_mistakes_and_no_others():
    assert len(MISTAKES) >= 20
    assert len(re.findall(r"^\| (?!mistake|-)", PAGE.read_text(), re.MULTILINE)) == len(
        MISTAKES
    )


def test_answers_say_what_to_do():
    """None of them is a bare complaint: each has a second sentence, or says 'must'."""
    for mistake in MISTAKES:
        said = answer(mistake)
        assert re.search(r"[.;:] \S.*|must be|give", said.partition(": ")[2]), said


if __name__ == "__main__":
    PAGE.write_text(HEAD + "".join(map(row, MISTAKES)))
