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
from hopf_jax import Config, Graph, HOPFClassifier, fit

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "guides" / "mistakes.md"
HEAD = """# Common mistakes

This page lists common mistakes and the error message that each of them raises; a test
checks that they agree. In the examples, `club` is a networkx graph of six people with
the attribute `team`, `graph` is the `Graph` made from it, and `result` is its fit;
`calls` and `people` are tables of edges and of nodes.

| mistake | message |
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


CALLS = pd.DataFrame({"source": ["Ann", "Bob"], "target": ["Bob", "Cem"]})
PEOPLE = pd.DataFrame(
    {"age": [31, 28, 35], "team": ["red", "blue", None]}, index=["Ann", "Bob", "Cem"]
)


# The call as a user would write it, and what makes it.
MISTAKES = {
    'fit(graph, "gnc")': lambda: fit(graph(), "gnc"),
    "fit(graph, hiden_size=8)": lambda: fit(graph(), hiden_size=8),
    "Config(hiden_size=8)": lambda: Config(hiden_size=8),
    "fit(graph, lr=0.01)": lambda: fit(graph(), lr=0.01),
    "fit(graph, epochs=10)": lambda: fit(graph(), epochs=10),
    "fit(graph, random_state=0)": lambda: fit(graph(), random_state=0),
    "fit(graph, devices=2)": lambda: fit(graph(), devices=2),
    "fit(graph, dropout=50)": lambda: fit(graph(), dropout=50),
    'fit(graph, ["gcn", "gat"])': lambda: fit(graph(), ["gcn", "gat"]),
    'fit(graph, progress="yes")': lambda: fit(graph(), "gcn", progress="yes"),
    "fit(graph, callbacks=print)": lambda: fit(graph(), callbacks=print),
    'fit(club, labels="team")': lambda: fit(club(), labels="team"),
    'fit("calls.csv")': lambda: fit("calls.csv"),
    "fit(list_of_pairs)": lambda: fit([("Ann", "Bob"), ("Bob", "Cem")]),
    "fit(club)": lambda: fit(club()),
    "fit(adjacency_matrix)": lambda: fit(graph().adjacency),
    "fit(graph_without_labels)": lambda: fit(Graph.from_networkx(club())),
    "fit(graph_with_one_label)": lambda: fit(
        Graph.from_networkx(club(), labels={"Ann": "red"})
    ),
    "fit(graph_with_three_labels, folds=5)": lambda: fit(
        Graph.from_networkx(club(), labels=dict.fromkeys(["Ann", "Bob", "Cem"], "red")),
        folds=5,
    ),
    "neither features nor edges": lambda: fit(
        Graph.from_networkx(nx.Graph([("Ann", "Ann")]), labels={"Ann": "red"}), folds=2
    ),
    "Graph(club)": lambda: Graph(club()),
    "Graph.from_networkx(nx.Graph())": lambda: Graph.from_networkx(nx.Graph()),
    'Graph.from_networkx(club, label="team")': lambda: Graph.from_networkx(
        club(), label="team"
    ),
    'Graph.from_networkx(club, labels={"Bop": "red"})': lambda: Graph.from_networkx(
        club(), labels={"Bop": "red"}
    ),
    'Graph.from_networkx(club, labels=["red", "blue"])': lambda: Graph.from_networkx(
        club(), labels=["red", "blue"]
    ),
    'Graph.from_networkx(club, labels={"Ann": ["red", "blue"]})': lambda: (
        Graph.from_networkx(club(), labels={"Ann": ["red", "blue"]})
    ),
    'Graph.from_networkx(club, labels="Team")': lambda: Graph.from_networkx(
        club(), labels="Team"
    ),
    'Graph.from_networkx(club, features=["team"], labels="team")': lambda: (
        Graph.from_networkx(club(), ["team"], "team")
    ),
    "lists among the features": lambda: Graph.from_pandas(
        CALLS, PEOPLE.assign(skills=[["sql"], [], ["go"]]), labels="team"
    ),
    "Graph.from_edges(edge_index, features)": lambda: Graph.from_edges(
        np.array([[0, 1, 2], [1, 2, 3]]), np.eye(4)
    ),
    "ids from 1 to N": lambda: Graph.from_edges([1, 2, 3], [2, 3, 4], np.eye(4)),
    'Graph.from_edges([0], [1], features, labels="team")': lambda: Graph.from_edges(
        [0], [1], np.eye(2), "team"
    ),
    "Graph.from_edges([0.0, 1.0], [1.0, 2.0])": lambda: Graph.from_edges(
        [0.0, 1.0], [1.0, 2.0]
    ),
    "ids that cannot be hashed": lambda: Graph.from_edges([{"id": 1}], [{"id": 2}]),
    "numbers written as text": lambda: Graph.from_edges([0], [1], [["1"], ["2"]]),
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
    "Graph.from_pandas(people, calls)": lambda: Graph.from_pandas(PEOPLE, CALLS),
    'Graph.from_pandas("calls.csv")': lambda: Graph.from_pandas("calls.csv"),
    "the names are a column, not the index": lambda: Graph.from_pandas(
        CALLS, PEOPLE.rename_axis("name").reset_index(), labels="team"
    ),
    "one person has two rows": lambda: Graph.from_pandas(
        CALLS, pd.concat([PEOPLE, PEOPLE[:1]]), labels="team"
    ),
    "a row of calls has no target": lambda: Graph.from_pandas(
        CALLS.where(CALLS != "Cem"), PEOPLE, labels="team"
    ),
    'numbers in calls, labels={"1": "red"}': lambda: Graph.from_pandas(
        pd.DataFrame({"source": [1], "target": [2]}), labels={"1": "red"}
    ),
    "a date among the features": lambda: Graph.from_pandas(
        CALLS, PEOPLE.assign(born=pd.Timestamp("2000-01-01")), labels="team"
    ),
    "graph.with_split(train=0.8)": lambda: graph().with_split(train=0.8),
    "graph.with_split(val=[1])": lambda: graph().with_split(val=[1]),
    "graph.feature": lambda: graph().feature,
    'graph.with_split(train=["Bob"], test=["Bob"])': lambda: graph().with_split(
        train=["Bob"], test=["Bob"]
    ),
    "a mask of 0 and 1": lambda: graph().with_split(train=[1, 0, 1, 0, 1, 0]),
    "split_graph(graph, train=80)": lambda: hopf_jax.split_graph(graph(), train=80),
    'result.predict(["Bop"])': lambda: result().predict(["Bop"]),
    "result.predict(club)": lambda: result().predict(club()),
    "result.predict(matrix)": lambda: result().predict(np.eye(6)),
    "result.predict(another_graph)": lambda: result().predict(
        Graph.from_edges([0], [1], np.eye(2))
    ),
    "result.predictproba()": lambda: result().predictproba(),
    "result.accuracy": lambda: result().accuracy,
    'result.explain("Boob")': lambda: result().explain("Boob"),
    'result.explain("Bob", label="green")': lambda: result().explain(
        "Bob", label="green"
    ),
    "hopf_jax.from_networkx(club)": lambda: hopf_jax.from_networkx(club()),
    "tune(graph, modles=[...])": lambda: hopf_jax.tune(graph(), modles=["gcn"]),
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
    """The type of the error that a mistake gets, and its message."""
    kinds = ValueError, TypeError, AttributeError, OSError
    with pytest.raises(kinds) as caught:
        MISTAKES[mistake]()
    return f"`{caught.type.__name__}`: {caught.value}"


def row(mistake):
    code = re.search(r"[(.]", mistake)
    cells = [f"`{mistake}`" if code else mistake, answer(mistake)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_page_has_the_message_of_a_mistake(mistake):
    assert row(mistake) in PAGE.read_text()


def test_the_page_lists_all_mistakes_and_no_others():
    assert len(MISTAKES) >= 50
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
