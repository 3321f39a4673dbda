"""`fit` as a whole: the HOPF loop, for every row, and each of its settings."""

import dataclasses
import hashlib
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from hopf_jax import MODELS, Aggregate, Config, Execution, Graph, Kernel, fit
from hopf_jax.batching import Loader
from hopf_jax.kernels.aggregators import mean
from hopf_jax.learning.plan import make_plan
from tests import graphs

# One net and one objective for most tests: they share what is compiled.
SHORT = Config(
    hidden_size=5, batch_size=3, num_iterations=3, max_epochs=4, min_epochs=2
)
ITERATIVE = "i-nip-mean"


def vary(**settings):
    return dataclasses.replace(SHORT, **settings)


def fitted(graph=None, model=ITERATIVE, *, seed=0, execution=None, **settings):
    graph = graphs.tiny("weighted") if graph is None else graph
    return fit(graph, model, vary(**settings), seed=seed, execution=execution)


STREAMED = Execution(memory_budget=0)


def loader_of(graph, model, config, part="training"):
    how = getattr(make_plan(graph, MODELS[model], config, STREAMED), part)
    roots = graph.train if part == "training" else graph.validation
    return Loader(graph, np.flatnonzero(roots), how, 0)


@pytest.fixture(scope="module")
def base():
    return fitted()


def saved(result, tmp_path):
    result.save(tmp_path / "result")
    return (tmp_path / "result").read_bytes()


def assert_same_weights(one, other):
    assert len(one.weights) == len(other.weights)
    for a, b in zip(one.weights, other.weights, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])
    np.testing.assert_array_equal(one.probabilities, other.probabilities)


def differ(one, other, iteration):
    a, b = one.weights[iteration - 1], other.weights[iteration - 1]
    return any((np.asarray(a[name]) != b[name]).any() for name in a)


# It learns


@pytest.mark.parametrize("model", MODELS)
def test_every_row_overfits_20_nodes(model):
    # Random labels; random features, so that even neighbours tell nodes apart.
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        np.concatenate([np.arange(24), rng.integers(0, 24, 16)]),
        np.concatenate([np.roll(np.arange(24), 1), rng.integers(0, 24, 16)]),
        rng.normal(size=(24, 40)),
        rng.integers(0, 3, 24),
        train=np.arange(20),
        validation=np.arange(20, 24),
    )
    assert graph.degree.min() > 0  # To bl-neigh, a node alone says nothing.
    config = Config(
        num_hops=1,
        hidden_size=32,
        num_iterations=1,
        dropout=0.0,
        l2=0.0,
        learning_rate=0.05,
        max_epochs=60,
        min_epochs=60,  # The last weights, whatever the validation nodes say.
    )
    result = fit(graph, model, config)
    assert result.scores["train"]["micro_f1"] == 1
    assert result.history[-1]["train_loss"] < 0.2 * result.history[0]["train_loss"]


def test_it_learns_several_labels():
    graph = graphs.tiny("weighted", multilabel=True)
    result = fit(
        graph,
        "nip-mean",
        Config(
            hidden_size=32,
            dropout=0.0,
            l2=0.0,
            learning_rate=0.05,
            max_epochs=60,
            min_epochs=60,
        ),
    )
    assert result.scores["train"]["micro_f1"] == 1
    assert result.predict().shape == (18, 3)
    assert result.predict().dtype == np.uint8
    assert set(np.unique(result.predict())) == {0, 1}


def test_labels_travel_over_iterations():
    # Two chains of one label each, and no feature says anything: only the two nodes at
    # either end are known, and an iteration brings their labels a hop farther.
    n = 16
    ends = np.array([i for i in range(n - 1) if i != n // 2 - 1])
    graph = Graph.from_edges(
        ends,
        ends + 1,
        np.ones((n, 1), np.float32),
        np.repeat([0, 1], n // 2),
        train=[0, 1, n - 2, n - 1],
        validation=[2, n - 3],
        test=[4, n - 5],
    )
    config = Config(
        features="as-is",  # A constant.
        num_hops=1,
        hidden_size=16,
        num_iterations=6,
        average_labels=False,
        training_summaries="as-printed",  # Of four labels, none is to spare.
        dropout=0.0,
        l2=0.0,
        learning_rate=0.05,
        max_epochs=40,
        min_epochs=40,
    )
    result = fit(graph, "ss-ica", config)
    scores = [t["scores"] for t in result.iterations]
    assert scores[0]["train"]["micro_f1"] == 0.5  # All nodes look the same.
    assert [s["train"]["micro_f1"] for s in scores[1:]] == [1] * 5
    assert result.iteration == 6
    assert result.scores["test"]["micro_f1"] == 1
    first = fit(graph, "ss-ica", dataclasses.replace(config, num_iterations=1))
    assert np.ptp(first.probabilities[:, 0]) < 1e-6


# The same numbers


def test_the_same_seed_saves_the_same_bytes(base, tmp_path):
    assert saved(base, tmp_path) == saved(fitted(), tmp_path)
    assert saved(base, tmp_path) != saved(fitted(seed=1), tmp_path)


@pytest.mark.slow
def test_the_same_seed_saves_the_same_bytes_in_another_process(tmp_path):
    root = pathlib.Path(__file__).parent.parent
    digests = set()
    for i in range(2):
        path = tmp_path / str(i)
        code = (
            "from tests.test_fitting import fitted; import sys; "
            "fitted().save(sys.argv[1])"
        )
        subprocess.run([sys.executable, "-c", code, path], cwd=root, check=True)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("model", "sparse", "batch_size"),
    [
        (ITERATIVE, False, 3),
        (ITERATIVE, True, 3),
        ("gcn", True, 3),
        ("gs-max", False, 3),
        ("gcn", False, 8),  # A single batch.
    ],
)
def test_streamed_training_is_resident_training(model, sparse, batch_size, optimized):
    # Enough epochs for a difference in the last bit to show.
    graph = graphs.tiny("all", sparse=sparse)
    settings = {"num_iterations": 2, "max_epochs": 8, "batch_size": batch_size}
    resident = fitted(graph, model, **settings)
    streamed = fitted(graph, model, **settings, execution=STREAMED)
    assert len(resident.history) == len(streamed.history) > 1
    assert_same_weights(resident, streamed)
    for one, other in zip(resident.history, streamed.history, strict=True):
        assert one | {"seconds": 0} == other | {"seconds": 0}


def uneven():
    """A star of 80 and forty pairs: batches of one root have very different sizes."""
    star = np.arange(1, 81)
    pairs = np.arange(81, 161, 2)
    rng = np.random.default_rng(0)
    return Graph.from_edges(
        np.concatenate([np.zeros(80, int), pairs]),
        np.concatenate([star, pairs + 1]),
        rng.normal(size=(161, 4)),
        rng.integers(0, 3, 161),
        train=np.concatenate([star[:6], pairs[:30]]),
        validation=[0, 90],
    )


def test_streamed_training_is_resident_training_over_groups(optimized):
    graph = uneven()
    config = vary(batch_size=1, num_iterations=1, max_epochs=2)
    assert len(loader_of(graph, "nip-mean", config).layouts) > 1
    one, other = (
        fit(graph, "nip-mean", config, execution=how) for how in (None, STREAMED)
    )
    assert_same_weights(one, other)


def test_a_run_compiles_one_program_a_bucket(compiled):
    # A width of its own, so that no other test has compiled it.
    result = fitted(hidden_size=6)
    assert len(result.history) == 12
    assert compiled["resident_epoch"] == 1
    train, held = (
        loader_of(graphs.tiny("weighted"), ITERATIVE, SHORT, part)
        for part in ("training", "validation")
    )
    assert train.num_batches > len(train.layouts)
    streamed = fitted(hidden_size=6, execution=STREAMED)
    assert len(streamed.history) == 12
    assert compiled["train_groups"] == len(train.layouts)
    assert compiled["evaluate_groups"] == len(held.layouts)
    assert compiled["resident_epoch"] == 1


def test_drawn_neighbours_are_the_same_by_seed():
    one, same, other = (
        fitted(seed=seed, fanouts=(2, 2), num_iterations=1) for seed in (0, 0, 1)
    )
    assert_same_weights(one, same)
    assert differ(one, other, 1)
    assert differ(one, fitted(num_iterations=1), 1)


# Settings


def test_labels_are_averaged_from_the_second_iteration_on(base):
    other = fitted(average_labels=False)
    assert not differ(base, other, 1)
    assert not differ(base, other, 2)  # a_1 = 0.
    assert differ(base, other, 3)


def still(**settings):
    """Weights as each iteration starts with: it does not learn."""
    return fitted(learning_rate=1e-30, max_epochs=1, bias=False, **settings).weights


def test_an_iteration_starts_from_the_last_weights_and_a_fresh_output():
    warm, cold = still(), still(warm_start=False)
    for name in warm[0]:
        np.testing.assert_array_equal(warm[0][name], cold[0][name])
        fresh = (warm[0][name] != warm[1][name]).any()
        assert fresh == (name == "w_output"), name
        assert (cold[0][name] != cold[1][name]).any(), name


def test_hidden_states_as_summary(base):
    result = fitted(summary="hidden")
    assert result.sizes.summary == 5
    assert base.sizes.summary == 3
    assert result.weights[0]["w_2_psi"].shape == (5 + 5, 5)
    graph = graphs.tiny("weighted")
    np.testing.assert_array_equal(result.predict_proba(graph), result.probabilities)


def test_it_stops_when_the_labels_have_settled(base):
    assert len(base.iterations) == 3
    assert len(fitted(tolerance=10.0).iterations) == 1
    assert len(fitted(tolerance=1e-9).iterations) == 3


def test_rows_that_read_no_labels_have_one_iteration():
    assert len(fitted(model="nip-mean").iterations) == 1


def test_a_fraction_of_the_neighbours(base):
    result = fitted(neighbor_fraction=0.3)
    assert differ(base, result, 1)
    graph = graphs.tiny("weighted")
    np.testing.assert_array_equal(result.predict_proba(graph), result.probabilities)


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": 0.0},
        {"l2": 1.0},
        {"weighted_loss": True},
        {"clip": 1e-3},
        {"learning_rate": 0.1},
        {"init_weights": "fan-out"},
        {"batch_size": 8},
    ],
    ids=lambda s: next(iter(s)),
)
def test_every_setting_of_training_has_an_effect(settings):
    plain, other = (fitted(model="bl-node", **s) for s in ({}, settings))
    assert differ(plain, other, 1)


def test_biases():
    result = fitted(model="bl-node", bias=True, learning_rate=0.1)
    assert {"b_1", "b_2", "b_output"} <= result.weights[0].keys()
    assert np.abs(result.weights[0]["b_output"]).max() > 0


def test_epochs_are_bounded():
    result = fitted(num_iterations=1, max_epochs=9, patience=1, min_epochs=0)
    assert 2 < len(result.history) <= 9
    assert len(fitted(num_iterations=1, max_epochs=1, min_epochs=50).history) == 1


# What it tells


def test_history_and_the_reported_iteration(base):
    assert [r["iteration"] for r in base.history] == [1] * 4 + [2] * 4 + [3] * 4
    assert [r["epoch"] for r in base.history] == [1, 2, 3, 4] * 3
    scores = ("loss", "micro_f1", "macro_f1")
    names = {f"{s}_{n}" for s in ("train", "validation") for n in scores}
    names |= {"iteration", "epoch", "learning_rate", "seconds"}
    assert all(record.keys() == names for record in base.history)
    assert all(np.isfinite(list(record.values())).all() for record in base.history)
    # Which one is reported is tested in test_scoring.py.
    assert base.scores == base.iterations[base.iteration - 1]["scores"]
    assert base.scores.keys() == {"train", "validation", "test"}


def test_the_scores_are_those_of_the_predictions(base):
    graph = graphs.tiny("weighted")
    truth = graph.labels.argmax(axis=1)
    for name in ("train", "validation", "test"):
        mask = getattr(graph, name)
        accuracy = (base.predict(mask) == truth[mask]).mean()
        np.testing.assert_allclose(base.scores[name]["micro_f1"], accuracy)


def test_callbacks_see_every_epoch():
    seen = []
    result = fit(
        graphs.tiny("weighted"), ITERATIVE, SHORT, callbacks=[seen.append, seen.append]
    )
    assert seen[::2] == result.history


def test_a_callback_may_stop_the_run():
    def stop(record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(graphs.tiny("weighted"), ITERATIVE, SHORT, callbacks=[stop])


def test_progress_is_silent_when_piped_and_shown_when_asked(capsys):
    fitted(num_iterations=1)
    assert capsys.readouterr() == ("", "")
    fit(graphs.tiny("weighted"), ITERATIVE, vary(num_iterations=1), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fit" in err


def test_the_defaults_are_taken():
    fast = {"max_epochs": 1, "num_iterations": 1}
    result = fit(graphs.tiny("weighted"), "i-nip-mean", config=Config(**fast))
    assert result.kernel == MODELS["i-nip-mean"]
    assert result.seed == 0


# Labels and sets


def with_labels(labels, **split):
    graph = graphs.tiny("weighted")
    return Graph.from_scipy(graph.adjacency, graph.features, labels, **split)


def test_unknown_labels_and_no_test_nodes():
    labels = np.arange(18) % 3
    labels[12:] = -1
    graph = with_labels(labels, train=range(8), validation=range(8, 12))
    result = fitted(graph)
    assert result.scores.keys() == {"train", "validation"}
    assert np.isfinite(result.probabilities).all()
    assert result.predict().shape == (18,)
    # What is not known is not read.
    labels[12:] = 1
    known = with_labels(labels, train=range(8), validation=range(8, 12))
    assert_same_weights(result, fitted(known))


def test_a_label_without_training_nodes():
    labels = np.arange(18) % 3
    labels[:8] = np.arange(8) % 2
    graph = with_labels(labels, train=range(8), validation=range(8, 12))
    result = fitted(graph)
    assert np.isfinite(result.probabilities).all()
    assert result.probabilities.shape == (18, 3)


def test_validation_and_test_labels_are_not_learned_from(base):
    graph = graphs.tiny("weighted")
    labels = graph.labels.argmax(axis=1)
    labels[13:] = (labels[13:] + 1) % 3
    split = {"train": graph.train, "validation": graph.validation, "test": graph.test}
    assert_same_weights(base, fitted(with_labels(labels, **split)))


def test_the_kinds_of_features_agree(tmp_path):
    graph = graphs.tiny("weighted")
    np.save(tmp_path / "x.npy", graph.features)
    mapped = dataclasses.replace(
        graph, features=np.load(tmp_path / "x.npy", mmap_mode="r")
    )
    dense, from_disk, sparse = (
        fitted(g, dropout=0.0, num_iterations=2, num_hops=1, features="as-is")
        for g in (graph, mapped, graphs.tiny("weighted", sparse=True))
    )
    assert sp.issparse(graphs.tiny("weighted", sparse=True).features)
    for other in (from_disk, sparse):
        np.testing.assert_allclose(
            dense.probabilities, other.probabilities, rtol=1e-3, atol=1e-4
        )


def test_a_graph_without_edges():
    graph = graphs.tiny()
    alone = Graph.from_edges(
        [],
        [],
        graph.features,
        graph.labels,
        train=graph.train,
        validation=graph.validation,
    )
    for model in (ITERATIVE, "gs-max"):
        result = fitted(alone, model, num_iterations=1, num_hops=1)
        assert np.isfinite(result.probabilities).all()


# Rows of one's own


def heaviest(graph, x, num_receivers, weights, draws):
    """Only the sum of the neighbours, halved: an aggregate that no one else has."""
    del weights, draws
    messages = graph.edges["weight"][:, None] * jnp.take(x, graph.senders, axis=0)
    return 0.5 * jax.ops.segment_sum(messages, graph.receivers, num_receivers)


def test_a_row_and_an_aggregate_of_ones_own():
    mine = Kernel(("h0",), ("h", "y"), Aggregate("half-sum", heaviest))
    result = fitted(model=mine)
    assert result.kernel is mine
    graph = graphs.tiny("weighted")
    np.testing.assert_array_equal(result.predict_proba(graph), result.probabilities)


def test_a_row_that_the_table_has_gives_what_its_name_gives(base):
    row = Kernel(("h0",), ("h", "y"), mean, skip_from=2)
    assert_same_weights(base, fitted(model=row))


# Bad input


def test_bad_input_is_told():
    graph = graphs.tiny()
    unknown = Graph.from_scipy(graph.adjacency, graph.features)
    with pytest.raises(ValueError, match=r"no train nodes.*labels="):
        fit(unknown)
    empty = Graph.from_edges(
        [0], [1], np.zeros((3, 0)), [0, 1, 0], train=[0], validation=[1]
    )
    with pytest.raises(ValueError, match="no features"):
        fit(empty)
    with pytest.raises(
        ValueError, match=r"graph is a sparse matrix.*Graph\.from_scipy"
    ):
        fit(graph.adjacency)
    with pytest.raises(ValueError, match="No model is called 'sage'"):
        fit(graph, "sage")
    for settings in ({"num_hops": 2}, {}):
        with pytest.raises(ValueError, match="config is a dict"):
            fit(graph, "gcn", settings)
        with pytest.raises(ValueError, match="execution is a dict"):
            fit(graph, "gcn", execution=settings)
    for seed in (-1, 1.5, None, True, 2**32):
        with pytest.raises(ValueError, match="seed is"):
            fit(graph, "gcn", seed=seed)
