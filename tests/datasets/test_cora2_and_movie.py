"""The JSON files of cora2 and the tables of movie, on files made here."""

import json

import numpy as np
import pytest

from hopf_jax import datasets
from hopf_jax.datasets import DATASETS, DatasetError, readers

CORA2 = DATASETS["cora2"].layouts[0]
MOVIE = DATASETS["movie"].layouts[0]
NUM_PAPERS = 24


@pytest.fixture
def papers(tmp_path):
    """24 papers, of which 7 and 30 have two terms; class "c" is too small to keep."""
    terms = {str(number): {"AB": 1.0} for number in range(7, 7 + NUM_PAPERS)}
    terms["7"] = {"AC": 0.5, "AA": 2}
    terms["30"] = {"AA": 1, "AB": 3}
    files = {
        "paper_terms": terms,
        "term_dictionary": {"AA": "graph", "AB": "node", "AC": "edge"},
        "paper_references": [[7, 8], [9, 7], [8, 8]],
        "classification_papers": {
            "b/a": list(range(8, 30)),
            "a": [1, 2, *range(10, 30)],  # 1 and 2 have no terms.
            "c": [1, 2, 3, *range(11, 30)],
        },
    }
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_cora2(papers):
    contents = readers.read(papers, CORA2, {})
    expected = np.tile(np.array([0, 1, 0], np.float32), (NUM_PAPERS, 1))
    expected[0] = [2, 0, 0.5]
    expected[-1] = [1, 3, 0]
    np.testing.assert_array_equal(contents.features, expected)
    assert contents.receivers.tolist() == [0, 2, 1]  # The citing papers.
    assert contents.senders.tolist() == [1, 0, 1]
    assert contents.label_names == ("a", "b/a")
    a = np.arange(NUM_PAPERS)
    np.testing.assert_array_equal(contents.labels[:, 0], (a >= 3) & (a < 23))
    np.testing.assert_array_equal(contents.labels[:, 1], (a >= 1) & (a < 23))


def test_papers_without_a_label_are_in_no_set(papers, monkeypatch):
    monkeypatch.setattr(
        "hopf_jax.datasets.loading.load_contents",
        lambda *_: readers.read(papers, CORA2, {}),
    )
    with pytest.warns(UserWarning, match="cora2: 24 nodes, but 11881 are expected"):
        graph = datasets.load_dataset("cora2", percent=75)
    assert np.flatnonzero(~graph.known).tolist() == [0, 23]
    assert np.flatnonzero(graph.train | graph.validation | graph.test).size == 21
    assert not (graph.train | graph.validation | graph.test)[[0, 23]].any()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("paper_terms", '{"7": {"AA": 1', "delimiter: line 1"),
        ("paper_terms", '{"7": {"AA": "x"}}', "could not convert string to float: 'x'"),
        ("paper_terms", '{"7": {"AZ": 1}}', "term 'AZ' is not in term_dictionary"),
        ("paper_terms", '{"7": ["AA"]}', "'list' object"),
        ("paper_references", "[[7, 8], [7, 99]]", "paper '99' is not in paper_terms"),
        ("paper_references", "[[7, 8, 9], [7]]", "an item is not a pair"),
        ("paper_references", "[7]", "not iterable"),
        ("classification_papers", '{"a": null}', "not iterable"),
    ],
)
def test_damaged_json_says_where(papers, name, content, reason):
    (papers / f"{name}.json").write_text(content)
    with pytest.raises(DatasetError, match=rf"papers format.*{name}\.json.*{reason}"):
        readers.read(papers, CORA2, {})


@pytest.fixture
def movies(tmp_path):
    """Movies 2, 10, 30 and 40 with tags; 5 has none, though it shares an actor.

    10 and 2 share an actor and a director, 30 and 2 another actor; who directs 40 acts
    in 10, which is no edge.
    """
    tables = {
        "movie_tags.dat": ["2 7 1", "2 13 3", "10 7 2", "30 13 1", "40 99 1"],
        "movie_genres.dat": ["2 War", "2 Action", "5 Short", "10 War", "30 IMAX"],
        "movie_directors.dat": ["2 ann Ann É.", "10 ann Ann É.", "40 bob Bob"],
        "movie_actors_recovered.tsv": [
            *("2 cy", "5 cy", "10 cy", "10 bob"),
            *("2 #dee", "30 #dee", "5 eve", "40 fay"),
        ],
    }
    for name, lines in tables.items():
        rows = ["\t".join(line.split(" ", 2)) for line in ("movieID other", *lines)]
        (tmp_path / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def test_movie(movies):
    contents = readers.read(movies, MOVIE, {})
    assert contents.features.tolist() == [[3, 1, 0], [0, 2, 0], [1, 0, 0], [0, 0, 1]]
    assert contents.label_names == ("Action", "IMAX", "War")
    assert contents.labels.tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert contents.receivers.tolist() == [0, 0]
    assert contents.senders.tolist() == [1, 2]
    assert contents.weights is None


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("movie_tags.dat", "two\t7\t1", "could not convert string 'two' to int64"),
        ("movie_tags.dat", "2\t7\tmany", "could not convert string 'many'"),
        ("movie_genres.dat", "2", "invalid column index 1 at row 6"),
        ("movie_directors.dat", "2\t\xff", "can't decode byte 0xff"),
        ("movie_actors_recovered.tsv", "\t", "could not convert string ''"),
    ],
)
def test_a_damaged_table_says_where(movies, name, line, reason):
    with (movies / name).open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    with pytest.raises(DatasetError, match=f"hetrec format.*: {name}: .*{reason}"):
        readers.read(movies, MOVIE, {})
