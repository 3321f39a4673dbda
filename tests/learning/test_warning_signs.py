"""Each warning: data or training that provokes it, and some that does not."""

import dataclasses
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS, Config, Graph, HopfWarning, fit, fit_folds, split_graph
from hopf_jax.learning import check_data, check_training
from hopf_jax.learning.warning_signs import check_scales

CONFIG = Config(hidden_size=8, num_hops=1, max_epochs=60, min_epochs=5, patience=5)
FIT = {"progress": False}


def good(num_nodes=400, seed=0, homophily=0.9, **changes):
    """A graph of two classes that nothing is wrong with."""
    rng = np.random.default_rng(seed)
    labels = np.arange(num_nodes) % 2
    first = rng.integers(num_nodes, size=3 * num_nodes)
    second = rng.integers(num_nodes // 2, size=3 * num_nodes) * 2 + labels[first]
    second ^= rng.random(second.size) > homophily
    arguments = {
        "senders": first,
        "receivers": second,
        "features": rng.normal(size=(num_nodes, 3)) + 2 * labels[:, None],
        "labels": labels,
    }
    return Graph.from_edges(**arguments | changes)


def split(graph, **shares):
    return split_graph(graph, **{"train": 0.5, "validation": 0.3} | shares)


def signs(graph, model="gcn", config=CONFIG):
    return check_data(graph, MODELS[model], config)


@pytest.mark.parametrize("model", ["bl-node", "gcn", "nip-mean"])
def test_an_ordinary_fit_warns_of_nothing(model):
    config = dataclasses.replace(CONFIG, bias=True, max_epochs=2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", HopfWarning)
        fit(split(good()), model, config, **FIT)


def test_labels_of_one_class_alone():
    (said,) = signs(split(good(labels=["a"] * 400)))
    assert "All known labels are 'a'" in said
    several = np.ones((400, 1))
    assert signs(split(good(labels=several, multilabel=True))) == []


def test_advice_is_about_settings_that_could_be_changed():
    scores = {"micro_f1": 0.5, "macro_f1": 0.4}
    (said,) = check_training(split(good()), CONFIG, [], scores)
    assert "nothing was learned" in said and "bias" not in said
    plain = dataclasses.replace(CONFIG, bias=False, features="as-is")
    (said,) = check_training(split(good()), plain, [], scores)
    assert "bias=True" in said and "features='auto'" in said


def test_a_class_absent_from_training():
    labels = np.arange(400) % 2
    labels[7] = 2
    graph = split(good(labels=labels))
    assert signs(graph) == []
    train = graph.train.copy()
    train[7] = False
    graph = graph.with_split(train, graph.validation)
    with pytest.warns(HopfWarning, match=r"1 of 3 labels \(2\).*no training node"):
        fit(graph, "bl-node", CONFIG, **FIT)


def test_labels_like_ids():
    (message,) = signs(split(good(labels=np.arange(400))), "bl-node")[:1]
    assert "400 of 400 classes have one labelled node each" in message
    many = np.eye(400, dtype=int)
    graph = split(good(labels=many, multilabel=True))
    assert not any("classes have one" in m for m in signs(graph, "bl-node"))


@pytest.mark.parametrize(
    ("validation", "num_classes", "warned"),
    [(0.045, 2, True), (0.05, 2, False), (0.05, 11, True)],
)
def test_few_validation_nodes(validation, num_classes, warned):
    labels = np.arange(400) % num_classes
    graph = split(good(labels=labels), train=0.5, validation=validation)
    found = [m for m in signs(graph, "bl-node") if "validation nodes" in m]
    assert bool(found) == warned
    if warned:
        with pytest.warns(HopfWarning, match=r"There are \d+ validation nodes for"):
            fit(graph, "bl-node", CONFIG, **FIT)


@pytest.mark.parametrize("sparse", [False, True])
def test_constant_features_and_scales_apart(sparse):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 4))
    form = sp.csr_array if sparse else np.asarray
    assert check_scales(form(x)) == []
    (apart,) = check_scales(form(x * [1, 1, 1, 2e4]))
    assert "column 3" in apart and "Standardise" in apart
    flat = x * [1, 1, 0, 0] if sparse else x * [1, 1, 0, 0] + [0, 0, 5, 0.1]
    (constant,) = check_scales(form(flat))
    assert "2 of 4 features are constant" in constant
    assert len(check_scales(form(np.zeros((50, 4))))) == 1
    graph = split(good(features=form(np.tile(x * [1, 1, 1, 2e4], (8, 1)))))
    with pytest.warns(HopfWarning, match="differ in scale"):
        fit(graph, "bl-node", CONFIG, features="as-is", **FIT)


def test_isolated_training_nodes():
    graph = split(good())
    alone = split(good(senders=[0, 1], receivers=[2, 3]))
    assert signs(graph) == []
    assert signs(alone, "bl-node") == []  # It reads no neighbours.
    assert signs(alone, "gcn", dataclasses.replace(CONFIG, num_hops=0)) == []
    with pytest.warns(HopfWarning, match=r"of 200 training nodes have no neighbours"):
        fit(alone, "nip-mean", CONFIG, **FIT)


@pytest.mark.parametrize("homophily", [0.1, 0.5])
def test_low_homophily(homophily):
    graph = split(good(homophily=homophily))
    assert signs(graph, "nip-mean") == []  # It keeps neighbours apart.
    with pytest.warns(HopfWarning, match="Neighbours have the same label in"):
        fit(graph, "gcn", CONFIG, **FIT)
    few = split(good(homophily=homophily), train=0.05)
    assert signs(few) == []  # Too few edges between training nodes to say.


def test_homophily_of_unbalanced_classes_is_compared_with_chance():
    rng = np.random.default_rng(0)
    labels = (rng.random(400) < 0.1).astype(int)
    ends = rng.integers(400, size=(2, 2000))
    graph = split(good(senders=ends[0], receivers=ends[1], labels=labels))
    (message,) = signs(graph)
    assert "and by chance in" in message


def test_training_stopped_by_max_epochs():
    config = dataclasses.replace(CONFIG, max_epochs=3)
    with pytest.warns(HopfWarning, match="stopped by max_epochs=3"):
        fit(split(good()), "bl-node", config, **FIT)


@pytest.mark.parametrize("metric", ["micro", "macro"])
@pytest.mark.parametrize("multilabel", [False, True])
def test_no_better_than_a_constant(metric, multilabel):
    labels = np.arange(400) % 2
    if multilabel:
        labels = np.stack([labels, np.arange(400) % 5 == 0], axis=1)
    graph = split(good(labels=labels, multilabel=multilabel))
    config = dataclasses.replace(CONFIG, metric=metric)
    true = graph.labels[graph.train].astype(float)
    # The scores of predicting one class, or all labels, for every node.
    shares = true.mean(axis=0)
    each = 2 * shares / (1 + shares)
    if multilabel:
        best = 2 * shares.sum() / (2 + shares.sum()), each.mean()
        best = max(best[0], 2 * shares[0] / (1 + shares.sum())), best[1]
    else:
        best = shares.max(), each.max() / 2
    at, above = (
        check_training(
            graph, config, [], {"micro_f1": best[0] + e, "macro_f1": best[1] + e}
        )
        for e in (0, 0.01)
    )
    assert len(at) == 1 and "nothing was learned" in at[0] and above == []


def test_a_fit_that_learns_nothing():
    graph = split(good(features=np.ones((400, 1))))
    with pytest.warns(HopfWarning, match="nothing was learned"):
        fit(graph, "bl-node", CONFIG, features="as-is", **FIT)


def test_warnings_come_once_from_the_line_of_the_user():
    graph = split(good(), validation=0.02)
    config = dataclasses.replace(CONFIG, max_epochs=2, min_epochs=1)
    with pytest.warns(HopfWarning) as caught:
        fit_folds([graph, graph], "bl-node", config, **FIT)
    ours = [each for each in caught if each.category is HopfWarning]
    assert len({str(each.message) for each in ours}) == len(ours) == 2
    assert {each.filename for each in ours} == {__file__}
