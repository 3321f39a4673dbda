"""Comparing models: folds, ranks, bounds, and how they are shown."""

import dataclasses
import functools
import sys

import numpy as np
import pytest

import hopf_jax
from hopf_jax import MODELS, Comparison, Config, Graph, compare, fit, metrics
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.graph.graph import SPLITS
from hopf_jax.kernels.table import find_kernel
from hopf_jax.results import Decision, score

SHORT = Config(num_hops=1, hidden_size=4, max_epochs=2, batch_size=64)
PLANTED = make_planted(60, 120, 6, 3)
BASELINES = ("bl-node", "bl-neigh")


@pytest.fixture(scope="module")
def found():
    return compare(PLANTED, BASELINES, 2, SHORT, seed=3, share=0.4, progress=False)


@functools.cache
def any_result():
    return fit(paper_split(PLANTED, percent=40), "bl-node", SHORT, progress=False)


def pretended_result(graph, share):
    """A result that is right on this share of the test nodes."""
    said = graph.labels.astype(np.float32)
    test = np.flatnonzero(graph.test)
    wrong = test[round(share * len(test)) :]
    said[wrong] = 1 - said[wrong]
    return dataclasses.replace(
        any_result(),
        probabilities=said,
        scores=score(graph, said),
        decision=Decision(multilabel=graph.multilabel),
    )


@pytest.fixture
def perfect_fit(monkeypatch):
    """Replace training by a result whose predictions are the labels."""
    fake = lambda graph, *_, **__: pretended_result(graph, 1)  # noqa: E731
    monkeypatch.setattr("hopf_jax.comparison.fit", fake)


def pretended(right, *, folds=1, graphs=None):
    """A comparison of models that are right on these shares of the test nodes."""
    graphs = graphs or (make_planted(2000, 4000, 4, 2, seed=1),) * folds
    results = {
        name: tuple(
            pretended_result(graph, share)
            for graph, share in zip(graphs, shares, strict=True)
        )
        for name, shares in right.items()
    }
    return Comparison(results, tuple(graphs))


# Folds


def test_folds_are_drawn_by_number(found):
    first, second = found.graphs
    np.testing.assert_array_equal(first.test, PLANTED.test)  # Its own are kept.
    np.testing.assert_array_equal(second.test, PLANTED.test)
    assert (first.train != second.train).any()
    assert first.train.sum() + first.validation.sum() == 24


def test_a_fold_is_an_ordinary_fit(found):
    alone = fit(found.graphs[1], "bl-neigh", SHORT, seed=3, progress=False)
    np.testing.assert_array_equal(
        found.results["bl-neigh"][1].probabilities, alone.probabilities
    )
    expected = 100 * alone.scores["test"]["micro_f1"]
    assert found.table["bl-neigh"]["fold 2"] == expected


def test_as_many_nodes_as_in_the_graphs_own_split(perfect_fit):
    own = paper_split(PLANTED, percent=30)
    again = compare(own, ["bl-node"], 1, SHORT, progress=False).graphs[0]
    assert (again.train | again.validation).sum() == (own.train | own.validation).sum()
    bare = PLANTED.with_split()
    drawn = compare(bare, ["bl-node"], 1, SHORT, progress=False).graphs[0]
    assert (drawn.train | drawn.validation | drawn.test).all()
    assert (drawn.train.sum(), drawn.test.sum()) == (38, 12)


def test_folds_may_be_graphs(found):
    again = compare(None, BASELINES, found.graphs, SHORT, seed=3, progress=False)
    assert again.table == found.table
    assert repr(again) == repr(found)
    with pytest.raises(ValueError, match=r"folds\[0\] has 60 nodes, but graph has 40"):
        compare(make_planted(40, 60), BASELINES, found.graphs, SHORT)


def test_progress_shows_the_time_left(perfect_fit, capsys, monkeypatch):
    monkeypatch.setattr("hopf_jax.runtime.progress._INTERVAL", 0)
    compare(PLANTED, ["bl-node"], 2, SHORT, share=0.4, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "1 of 2 fits; now bl-node, fold 2, about" in err and "left" in err
    assert "compare: 2 fits, " in err.split("\r")[-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": ["bl-mode"]}, "No model is called 'bl-mode'"),
        ({"models": []}, "models is empty"),
        ({"models": 3}, "models is 3"),
        ({"models": [3]}, "No model is called 3"),
        ({"models": ["gcn", "gcn"]}, "lists one twice"),
        ({"folds": 0}, "folds is 0"),
        ({"folds": []}, "folds is empty"),
        ({"folds": "five"}, "folds is 'five'"),
        ({"folds": True}, "folds is True"),
        ({"folds": [PLANTED, 3]}, r"folds\[1\] is a int"),
        ({"folds": [PLANTED.with_split()]}, r"folds\[0\] has no train nodes"),
        ({"folds": [PLANTED.with_split([0], [1])]}, r"folds\[0\] has no test nodes"),
        ({"folds": [PLANTED], "share": 0.5}, "share is for folds to draw"),
        ({"graph": None}, "graph is None"),
        ({"graph": "cora"}, "graph is 'cora'.*load_dataset"),
        ({"on": "train"}, "on is 'train'"),
        ({"metric": "f1"}, "metric is 'f1'"),
        ({"level": 95}, "level is 95"),
        ({"level": "most"}, "level is 'most'"),
        ({"seed": -1}, "seed is -1"),
        ({"resamples": 0}, "resamples is 0"),
        ({"share": 0.99}, "share is 0.99"),
        ({"share": 99}, "share is 99; give .* such as 0.99"),
    ],
)
def test_bad_input_fails_before_anything_is_fitted(change, message, monkeypatch):
    monkeypatch.setattr("hopf_jax.comparison.fit", None)
    with pytest.raises(ValueError, match=message):
        compare(**{"graph": PLANTED, "config": SHORT, "progress": False} | change)


def test_kernels_of_ones_own_have_names(perfect_fit):
    mine = dataclasses.replace(find_kernel("gcn"), skip_from=1, phi=("h",), psi=("h",))
    listed = compare(PLANTED, ["gcn", mine, MODELS["gs-max"]], 1, progress=False)
    assert list(listed.results) == ["gcn", "kernel 2", "gs-max"]
    by_name = compare(PLANTED, {"a": "gcn", "b": mine}, 1, progress=False)
    assert list(by_name.results) == ["a", "b"]


# Statistics


def test_ranks_and_shortfalls_are_those_of_metrics():
    found = pretended({"a": (0.8, 0.7, 0.9), "b": (0.6, 0.8, 0.5)}, folds=3)
    by_name = {line.model: line for line in found.lines}
    assert [line.model for line in found.lines] == ["a", "b"]  # The best first.
    assert by_name["b"].shortfall == metrics.shortfall(found.table)["b"]
    assert by_name["a"].rank == pytest.approx(4 / 3)
    assert (by_name["a"].wins, by_name["b"].wins) == (2, 1)
    assert by_name["b"].gap == pytest.approx(100 * (0.8 - 1.9 / 3))
    assert by_name["b"].p_value == metrics.wilcoxon(found.table, "a", "b").p_value
    assert np.isnan(by_name["a"].p_value)
    assert found.friedman is None
    three = pretended({"a": (0.9, 0.8), "b": (0.6, 0.5), "c": (0.3, 0.2)}, folds=2)
    assert three.friedman == metrics.friedman(three.table)


def test_significant_differences_of_ranks():
    folds = 8
    shares = {"a": (0.9,) * folds, "b": (0.8,) * folds, "c": (0.5,) * folds}
    found = pretended(shares, folds=folds)
    assert found.critical_difference == pytest.approx(3.314 * (1 / folds) ** 0.5, 1e-3)
    assert [line.apart for line in found.lines] == [False, False, True]


def test_bounds_of_one_fold_are_those_of_its_nodes():
    # The accuracy on n nodes is normal with variance p (1 - p) / n.
    (line,) = pretended({"a": (0.7,)}).lines
    margin = 196 * np.sqrt(0.7 * 0.3 / 400)
    bounds = line.low, line.score, line.high
    assert bounds == pytest.approx((70 - margin, 70, 70 + margin), abs=0.5)


def test_bounds_widen_with_the_folds():
    # A resample has both folds, or one of them twice.
    (line,) = pretended({"a": (0.6, 0.8)}, folds=2).lines
    assert line.score == pytest.approx(70)
    assert line.low < 60.5 and line.high > 79.5


def test_gaps_are_of_the_same_resamples():
    found = pretended({"a": (0.7, 0.7), "b": (0.7, 0.7), "c": (0.65, 0.65)}, folds=2)
    alike = found.lines[1]
    assert (alike.gap, alike.gap_low, alike.gap_high) == (0, 0, 0)
    # They differ on 5% of the nodes: less than half of the error of unpaired models.
    worse = found.lines[2]
    margin = 196 * np.sqrt(0.05 * 0.95 / 400)
    bounds = worse.gap_low, worse.gap, worse.gap_high
    assert bounds == pytest.approx((5 - margin, 5, 5 + margin), abs=0.5)


def test_folds_with_other_test_nodes_are_resampled_apart():
    graph = make_planted(2000, 4000, 4, 2, seed=1)
    rest = np.flatnonzero(~graph.test & ~graph.train & ~graph.validation)[:400]
    other = graph.with_split(graph.train, graph.validation, rest)
    (same,) = pretended({"a": (0.7, 0.7)}, graphs=(graph, graph)).lines
    (apart,) = pretended({"a": (0.7, 0.7)}, graphs=(graph, other)).lines
    ratio = (apart.high - apart.low) / (same.high - same.low)
    # Different sets of nodes halve the variance, except where a fold is drawn twice:
    # (1/2 + 1) / 2 of the variance on average.
    assert ratio == pytest.approx(np.sqrt(0.75), abs=0.08)


def test_resampled_scores_are_those_of_repeated_nodes():
    rng = np.random.default_rng(0)
    true, said = rng.integers(0, 2, (2, 9, 3))
    times = rng.multinomial(9, np.full(9, 1 / 9), size=4)
    fast = metrics.resampled_f1_scores(true, said, times)
    for b, count in enumerate(times):
        rows = np.repeat(np.arange(9), count)
        for name, value in metrics.f1_scores(true[rows], said[rows]).items():
            assert fast[name][b] == pytest.approx(value)


def test_many_nodes_are_resampled_in_blocks(monkeypatch):
    whole = repr(pretended({"a": (0.7,)}))
    monkeypatch.setattr("hopf_jax.comparison._MOST_DRAWS", 400 * 7)
    assert repr(pretended({"a": (0.7,)})) == whole


def test_there_is_no_shortfall_where_the_best_score_is_zero():
    found = pretended({"a": (0.0, 0.5), "b": (0.0, 0.2)}, folds=2)
    assert all(np.isnan(line.shortfall) for line in found.lines)
    assert " -" in repr(found)


# Shown


def test_other_nodes_and_metrics_need_no_other_fit(found):
    other = found.scored(on="validation", metric="macro_f1")
    for model in BASELINES:
        expected = found.results[model][0].scores["validation"]["macro_f1"]
        assert other.table[model]["fold 1"] == 100 * expected
    assert repr(other).startswith("validation macro-F1 in percent, 2 folds")
    assert repr(other) != repr(found)
    assert set(found.results["bl-node"][0].scores) == set(SPLITS)


def test_a_comparison_is_text_and_html():
    found = pretended({"a<b>": (0.8, 0.9, 0.85), "c": (0.5, 0.45, 0.55)}, folds=3)
    text = repr(found).splitlines()
    assert text[1].split()[:3] == ["model", "score", "bounds"]
    assert text[2].startswith("a<b>   85.0 ± 4.1  [")
    assert "0.125" in text[3]
    page = found._repr_html_()
    assert "a&lt;b&gt;" in page and "<b>" not in page
    assert page.count("<tr>") == 3
    assert "One fold" in repr(pretended({"a": (0.8,)}))


def test_a_comparison_as_a_data_frame(found, monkeypatch):
    frame = found.to_pandas()
    assert list(frame.index) == [line.model for line in found.lines]
    assert frame["score"].tolist() == [line.score for line in found.lines]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        found.to_pandas()


def test_a_comparison_is_drawn(found):
    figure = found.plot()
    left, right = figure.axes
    assert [label.get_text() for label in left.get_yticklabels()] == [
        line.model for line in found.lines
    ]
    assert [bar.get_width() for bar in right.patches] == [
        line.shortfall for line in found.lines
    ]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_folds_may_have_different_kinds_of_labels(perfect_fit):
    many = Graph.from_scipy(
        PLANTED.adjacency,
        PLANTED.features,
        np.random.default_rng(0).integers(0, 2, (60, 4)),
        multilabel=True,
    )
    folds = [paper_split(PLANTED, percent=40), paper_split(many, percent=40)]
    found = compare(None, ["bl-node"], folds, SHORT, progress=False)
    assert len(found.table["bl-node"]) == 2
    (line,) = found.lines
    assert (line.low, line.score, line.high) == (100, 100, 100)


def test_baselines_stand_beside_kernels():
    names = ["bl-node", "sgc-logistic", "Correct & Smooth"]
    found = compare(PLANTED, names, 2, SHORT, seed=3, share=0.4, progress=False)
    assert {line.model for line in found.lines} == set(names)
    assert "sgc-logistic" in str(found)
    one = found.results["sgc-logistic"][0]
    assert one.predict().shape == (PLANTED.num_nodes,)
    other = hopf_jax.fit_baseline(found.graphs[0], "SGC logistic", SHORT)
    np.testing.assert_array_equal(one.probabilities, other.predict_proba())
    # Validation nodes are judged by what was predicted before they were learned from.
    held = found.scored(on="validation")
    line = next(line for line in held.lines if line.model == "Correct & Smooth")
    assert line.low - 1e-6 <= line.score <= line.high + 1e-6
    graph, result = found.graphs[0], found.results["Correct & Smooth"][0]
    right = result.held_out.argmax(axis=1) == graph.labels.argmax(axis=1)
    want = right[graph.validation].mean()
    np.testing.assert_allclose(result.scores["validation"]["micro_f1"], want)
    with pytest.raises(ValueError, match=r"called 'sgd'.*Baselines: majority"):
        compare(PLANTED, ["sgd"], 2, SHORT)
