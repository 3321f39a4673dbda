"""Reports, tables of predictions, and what notebooks show."""

import networkx as nx
import numpy as np
import pytest

from hopf_jax import Config, Graph, fit, load
from hopf_jax.metrics import f1_scores
from tests import graphs

QUICK = Config(num_hops=1, hidden_size=4, num_iterations=2, max_epochs=4, min_epochs=1)


@pytest.fixture(scope="module")
def named():
    """A cross-validated result of a graph whose nodes and labels need escaping."""
    network = nx.relabel_nodes(nx.karate_club_graph(), lambda i: f"<b>{i}</b>")
    clubs = nx.get_node_attributes(network, "club")
    labels = {node: f"<i>{club}" for node, club in list(clubs.items())[::2]}
    return fit(Graph.from_networkx(network, labels=labels), "i-nip-mean", QUICK)


def test_predictions_are_the_users_labels(named, tmp_path):
    assert named.classes_.tolist() == ["<i>Mr. Hi", "<i>Officer"]
    said = named.predict(["<b>3</b>", "<b>0</b>"])
    assert said.tolist() == named.predict([3, 0]).tolist()
    assert set(said.tolist()) <= set(named.classes_.tolist())
    named.save(tmp_path / "r.npz")
    loaded = load(tmp_path / "r.npz")
    assert loaded.node_names == named.node_names
    assert loaded.predict(["<b>3</b>"]) == said[:1]
    explained = loaded.explain("<b>3</b>", named.graph)
    assert explained.node == "<b>3</b>" and explained.label == said[0]
    with pytest.raises(ValueError, match="Did you mean '<b>3</b>'"):
        named.predict(["<b>3<b>"])


def test_a_table_of_predictions(named, result, multilabel_result):
    frame = named.to_frame()
    assert list(frame) == [
        "node",
        "label",
        "probability",
        "confidence",
        "second_choice",
    ]
    assert frame["node"].tolist() == list(named.node_names)
    np.testing.assert_array_equal(frame["label"], named.predict())
    np.testing.assert_array_equal(frame["probability"], named.probabilities.max(axis=1))
    np.testing.assert_array_equal(frame["confidence"], named.confidence().values)
    assert (frame["second_choice"] != frame["label"]).all()
    few = result.to_frame([3, 5])
    assert few["node"].tolist() == [3, 5] and few["label"].dtype == np.int64
    assert len(result.to_frame(result.graph)) == result.graph.num_nodes
    many = multilabel_result.to_frame([2])
    assert list(many) == ["node", "label", 0, 1, 2]
    expected = np.flatnonzero(multilabel_result.predict([2])[0])
    assert many["label"][0] == tuple(expected)


def test_a_report_on_test_nodes(result):
    report, graph = result.report(), result.graph
    assert report.on == "test" and (report.nodes == np.flatnonzero(graph.test)).all()
    assert report.scores == result.scores["test"]
    true = graph.labels[graph.test].argmax(axis=1)
    said = result.predict(graph.test)
    for line in report.by_class:
        assert line.support == (true == line.label).sum()
        hits = ((true == line.label) & (said == line.label)).sum()
        assert line.recall == pytest.approx(hits / max(1, line.support))
        assert line.precision == pytest.approx(
            hits / max(1, (said == line.label).sum())
        )
    table = np.zeros((3, 3), int)
    np.add.at(table, (true, said), 1)
    np.testing.assert_array_equal(report.confusion, table)
    assert [r["iteration"] for r in report.iterations] == [1, 2, 3]
    assert set(report.baselines) == {"majority", "logistic regression"}
    frame = report.to_frame()
    assert frame.loc[1, "support"] == (true == 1).sum()
    text = str(report)
    for part in ("precision", "logistic regression", "(used)", "gap between confidence",
                 "Model: i-nip-mean", "Data:", "Features:"):  # fmt: skip
        assert part in text


def test_a_cross_validated_report(named, tmp_path):
    report = named.report()
    assert report.on == "cross-validated" and len(report.nodes) == 17
    assert report.scores == pytest.approx(named.scores["validation"])
    true = named.graph.labels[report.nodes]
    common = np.zeros_like(true)
    common[:, true.sum(axis=0).argmax()] = 1
    shares = f1_scores(true, common)["micro_f1"]
    assert report.baselines["majority"]["micro_f1"] <= shares
    page = report._repr_html_() + named._repr_html_() + named.graph._repr_html_()
    assert "<b>" not in page and "<i>" not in page and "&lt;i&gt;Mr. Hi" in page
    named.save(tmp_path / "r.npz")
    loaded = load(tmp_path / "r.npz")
    with pytest.raises(ValueError, match=r"holds no graph.*result.report\(graph\)"):
        loaded.report()
    again = loaded.report(named.graph, baselines=False)
    assert again.scores == report.scores and again.baselines == {}
    with pytest.raises(ValueError, match="lacks the labels"):
        loaded.report(Graph.from_networkx(nx.karate_club_graph()))


def test_a_report_on_several_labels(multilabel_result):
    report = multilabel_result.report()
    assert report.confusion is None
    assert report.scores == multilabel_result.scores["test"]
    assert report.plot()._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("which", ["named", "result"])
def test_figures_of_a_report(which, request):
    fitted = request.getfixturevalue(which)
    report = fitted.report()
    classes, confusion, _, comparison = report.plot().axes
    widths = [bar.get_width() for bar in classes.patches]
    assert widths == pytest.approx([100 * line.f1 for line in report.by_class])
    assert classes.get_xlim()[0] == comparison.get_xlim()[0] == 0  # Bars are not cut.
    shown = [int(text.get_text()) for text in confusion.texts]
    assert shown == report.confusion.ravel().tolist()
    assert sum(each.size for each in report.reliability) == len(report.nodes)


def test_the_figure_of_one_iteration():
    one = fit(graphs.tiny(), "gcn", QUICK)
    scores = one.plot().axes[2]
    assert scores.get_ylim()[0] == 0
    heights = sorted(bar.get_height() for bar in scores.patches)
    expected = sorted(100 * v for each in one.scores.values() for v in each.values())
    assert heights == pytest.approx(expected)
