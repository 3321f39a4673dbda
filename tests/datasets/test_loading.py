"""`load_dataset`, on the real data if it is on this machine."""

import dataclasses
import time

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import datasets
from hopf_jax.datasets import DATASETS, load_dataset, normalize_rows
from tests import graphs

ON_HAND = (
    *("cora", "citeseer", "pubmed", "yeast", "amazon", "human-go2022"),
    *(pytest.param(name, marks=graphs.needs(name)) for name in ("cora2", "movie")),
)


@pytest.mark.parametrize("name", ON_HAND)
def test_counts_of_the_real_data(real_data, name):
    graph = load_dataset(name, data_dir=real_data)  # A difference warns: an error.
    contents = datasets.load_contents(DATASETS[name], real_data)
    paper = DATASETS[name].published
    found = graph.num_nodes, graph.num_features, graph.num_labels
    assert found == (paper.nodes, paper.features, paper.labels)
    counted = datasets.count_edges(contents)
    assert paper.arcs in counted.values() or name == "movie"
    assert graph.num_edges == counted["arcs but loops"]
    assert graph.multilabel == (DATASETS[name].task == "multi-label")
    rows = np.asarray(abs(graph.features).sum(axis=1))
    np.testing.assert_allclose(rows[rows > 0], 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["cora", "yeast", "amazon", "human-go2022"])
def test_the_authors_splits(real_data, name):
    graphs = [load_dataset(name, fold=f, data_dir=real_data) for f in (1, 5)]
    for fold, graph in zip((1, 5), graphs, strict=True):
        for mask, file in zip(
            (graph.train, graph.validation, graph.test),
            ("train", "val", "test"),
            strict=True,
        ):
            path = real_data / name / f"labels_random/10/{fold}/{file}_ids.npy"
            np.testing.assert_array_equal(mask, np.load(path))
    with pytest.raises(ValueError, match="have folds 1, 2, 3, 4, 5"):
        load_dataset(name, fold=6, data_dir=real_data)
    other = load_dataset(name, percent=20, data_dir=real_data)
    np.testing.assert_array_equal(other.test, graphs[0].test)
    assert other.train.sum() == int(0.16 * other.num_nodes)


def test_the_inductive_split(real_data):
    graph = load_dataset("human-go2022", split="inductive", data_dir=real_data)
    sets = graph.train, graph.validation, graph.test
    assert [int(s.sum()) for s in sets] == [44906, 6514, 5524]
    assert not (graph.adjacency @ graph.test.astype(np.float32))[~graph.test].any()


def test_human_loads_within_a_second(real_data):
    load_dataset("human-go2022", data_dir=real_data)
    start = time.perf_counter()
    load_dataset("human-go2022", data_dir=real_data)
    assert time.perf_counter() - start < 1


def test_features_are_sparse_for_words_and_raw_on_request(real_data):
    words = load_dataset("cora", normalize=False, data_dir=real_data)
    assert sp.issparse(words.features)
    assert set(np.unique(words.features.data)) == {1}
    dense = load_dataset("human-go2022", normalize=False, data_dir=real_data)
    assert isinstance(dense.features, np.memmap)


def test_drawn_splits_follow_the_seed(real_data):
    first, second, third = (
        load_dataset("citeseer", seed=seed, data_dir=real_data) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.train, second.train)
    assert (first.train != third.train).any()


@graphs.needs("cora2")
def test_no_set_has_papers_without_a_label(real_data):
    graph = load_dataset("cora2", data_dir=real_data)
    unlabelled = ~graph.labels.any(axis=1)
    assert unlabelled.sum() == 187
    np.testing.assert_array_equal(graph.known, ~unlabelled)
    assert not (graph.train | graph.validation | graph.test)[unlabelled].any()
    assert graph.num_edges == 2 * 31482


def test_rows_sum_to_one_or_stay_zero():
    dense = np.array([[1, -3], [0, 0]], np.float32)
    expected = [[0.25, -0.75], [0, 0]]
    np.testing.assert_allclose(normalize_rows(dense), expected)
    np.testing.assert_allclose(normalize_rows(sp.csr_array(dense)).toarray(), expected)


@pytest.mark.parametrize("name", datasets.SYNTHETIC)
def test_synthetic_graphs_have_names(name):
    graph = load_dataset(name, seed=2)
    assert graph.train.any()
    assert graph.test.any()
    np.testing.assert_allclose(abs(graph.features).sum(axis=1), 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("pubmedd", {}, "Unknown dataset 'pubmedd'. Did you mean 'pubmed'.*chain"),
        ("cora", {"split": "random"}, "split is 'random'"),
        ("cora", {"split": "inductive"}, "human, human-go2022 have"),
        ("chain", {"split": "inductive"}, "chain has no inductive split"),
    ],
)
def test_wrong_arguments(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        load_dataset(name, **arguments)


def test_counts_that_differ_are_said(toy, tmp_path, monkeypatch):
    wrong = dataclasses.replace(toy, counts=datasets.Counts(4, 5, 3, 2))
    monkeypatch.setattr("hopf_jax.datasets.loading.DATASETS", {"toy": wrong})
    with pytest.warns(UserWarning, match="toy: 4 arcs, but 5 are expected"):
        load_dataset("toy", data_dir=tmp_path / "originals", percent=50)
