"""Explanations: against finite differences of the dense formula, and as shown."""

import dataclasses

import numpy as np
import pytest

from hopf_jax import MODELS, Config, Graph, Kernel, fit, load
from hopf_jax.datasets import make_chain, make_planted
from hopf_jax.fitting import sizes_of
from hopf_jax.kernels import threefry
from hopf_jax.kernels.aggregators import mean
from hopf_jax.results.explanations import Explanation, hop_tree, influences
from hopf_jax.results.plots import class_colours
from hopf_jax.results.result import make_net
from tests import graphs, oracle

STEP = 1e-5
KERNELS = {name: MODELS[name] for name in ("gcn", "gs-max", "bl-neigh", "i-nip-mean")}
KERNELS["own summary"] = Kernel(("h0", "y"), ("h", "y"), mean, skip_from=2)


def moved(function, array):
    """d function / d array by central differences, [*array.shape, outputs]."""
    found = []
    for place in np.ndindex(array.shape):
        change = np.zeros(array.shape)
        change[place] = STEP
        found.append((function(array + change) - function(array - change)) / (2 * STEP))
    return np.array(found).reshape(*array.shape, -1)


@pytest.mark.parametrize("name", KERNELS)
def test_influences_are_those_of_the_dense_formula(name):
    row, graph, root = KERNELS[name], graphs.tiny("weighted"), 4
    net, params = graphs.net_of(row)
    x = graphs.dense_features(graph).astype(np.float64)
    summary = graphs.summary_for(row, graph)

    def logits(x, y):
        return oracle.forward(row, params, graph, x, y, graphs.NUM_HOPS)[0][root]

    by_x = moved(lambda x: logits(x, summary), x)  # [N, F, C]
    assert np.abs(by_x).sum() > 0
    every_label = np.eye(graphs.NUM_LABELS, dtype=np.float32)
    (found,) = influences(net, params, graph, summary, [root], every_label)
    nodes = found.subgraph.nodes
    expected = np.abs(by_x).sum(axis=(1, 2))
    np.testing.assert_allclose(found.attributes, expected[nodes], rtol=1e-3, atol=1e-4)
    assert expected.sum() == pytest.approx(expected[nodes].sum())  # No one is missing.
    combined = np.array([[1, -0.5, -0.5]], np.float32)
    (found,) = influences(
        net, params, graph, summary, [root], combined, times_input=True
    )
    expected = np.abs(by_x @ combined[0] * x).sum(axis=1)
    np.testing.assert_allclose(found.attributes, expected[nodes], rtol=1e-3, atol=1e-4)
    if summary is None:
        assert not found.labels.any()
        return
    y = summary.astype(np.float64)
    by_y = moved(lambda y: logits(x, y), y)
    expected = np.abs(by_y @ combined[0] * y).sum(axis=1)
    assert expected.sum() > 0
    np.testing.assert_allclose(found.labels, expected[nodes], rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="session")
def explained(result):
    return result.explain(5)  # The hub.


def test_shares_and_predictions(result, explained):
    assert list(explained.shares) == ["own", "hop 1", "hop 2", "labels"]
    assert sum(explained.shares.values()) == pytest.approx(1, abs=1e-9)
    assert all(share > 0 for share in explained.shares.values())
    assert not explained.constant
    for hop, name in enumerate(("own", "hop 1", "hop 2")):
        part = explained.attributes[explained.hops == hop].sum()
        assert explained.shares[name] == pytest.approx(part)
    assert explained.shares["labels"] == pytest.approx(explained.labels.sum())
    said = result.probabilities[explained.node]
    assert explained.label == result.classes_[said.argmax()]
    sure = result.confidence([explained.node]).values[0]
    assert explained.probability == pytest.approx(sure, rel=1e-5)
    predicted = result.predict(explained.nodes).tolist()
    assert list(explained.predictions) == predicted


def test_columns_of_features_have_shares(result, explained):
    attributes = sum(explained.shares.values()) - explained.shares["labels"]
    assert explained.columns.sum() == pytest.approx(attributes)
    first, *rest = explained.features(3)
    assert first.share >= rest[0].share and first.name.startswith("feature ")
    assert first.name in repr(explained)
    frame = explained.to_frame()
    assert frame["share"].sum() == pytest.approx(1, abs=1e-5)
    assert frame["share"].is_monotonic_decreasing
    near = explained.neighbors(1)[0]
    (row,) = frame[frame["node"] == near.node].itertuples()
    assert (row.hop, row.share, row.prediction) == (
        near.hop,
        near.share,
        near.prediction,
    )
    graph = dataclasses.replace(result.graph, feature_names=tuple("abcdefg"))
    named = fit(graph, "i-nip-mean", result.config).explain(5)
    assert named.features(1)[0].name in "abcdefg"


def test_nodes_and_labels_to_explain(result, explained):
    other = result.explain(explained.node, label="2")
    assert other.label == 2
    sure = result.confidence([explained.node]).probabilities[0]
    assert other.probability == pytest.approx(sure[2], rel=1e-4)
    again = result.explain(explained.node, label=2)
    np.testing.assert_array_equal(again.attributes, other.attributes)
    for bad in ("a", 3, -1, 1.5):
        with pytest.raises(ValueError, match=r"label is .*(0, 1, 2\.|mean 1)"):
            result.explain(0, label=bad)
    for bad in (18, -1, 1.5, True, [1], None):
        with pytest.raises(ValueError, match="node"):
            result.explain(bad)


def test_the_most_influential_nodes_come_first(result, explained):
    near, graph, node = explained.neighbors(), result.graph, explained.node
    shares = [each.share for each in near]
    assert len(near) == 10 and shares == sorted(shares, reverse=True)
    assert node not in [each.node for each in near]
    linked = graph.indices[graph.indptr[node] : graph.indptr[node + 1]]
    assert {each.node for each in near if each.hop == 1} <= set(linked.tolist())
    for each in near:
        assert each.share == pytest.approx(each.attributes + each.labels)
    assert len(explained.neighbors(3)) == 3


def test_a_loaded_result_needs_the_graph(result, explained, tmp_path):
    result.save(tmp_path / "r")
    loaded = load(tmp_path / "r")
    with pytest.raises(ValueError, match=r"holds no graph. Give it: result.explain"):
        loaded.explain(explained.node)
    assert loaded.explain(explained.node, result.graph).shares == explained.shares


def test_a_new_graph_may_be_explained(result):
    graph = result.graph
    bare = Graph.from_scipy(graph.adjacency[:11, :11], graph.features[:11])
    found = result.explain(3, bare)
    assert found.nodes.max() < 11
    sure = result.confidence(bare).values[3]
    assert found.probability == pytest.approx(sure, rel=1e-5)
    with pytest.raises(ValueError, match="2 features, but the model learned from 7"):
        result.explain(3, Graph.from_scipy(graph.adjacency, graph.features[:, :2]))


def test_a_prediction_may_depend_on_nothing():
    """A node alone, and a model that reads neighbours only."""
    graph = make_chain()
    alone = Graph.from_edges(
        [0, 1, 3, 4], [1, 3, 4, 5], graph.features, graph.labels, train=[0, 5]
    ).with_split([0, 5], [1, 4])
    config = Config(num_hops=1, hidden_size=3, max_epochs=1)
    found = fit(alone, "bl-neigh", config, progress=False).explain(2)
    assert found.constant
    assert set(found.shares.values()) == {0}
    assert found.neighbors() == []
    assert "depends on no input" in repr(found)
    assert found.plot()._repr_png_().startswith(b"\x89PNG")


def test_several_labels_per_node(multilabel_result):
    found = multilabel_result.explain(5, label="1")
    assert found.label == 1
    assert sum(found.shares.values()) == pytest.approx(1)


# Shown and drawn


def made(hops, edges, share):
    """An explanation with these shares of attributes."""
    hops, share = np.array(hops), np.array(share, float)
    return Explanation(
        node=7,
        label="a<b>",
        probability=0.5,
        shares={"own": share[0], "hop 1": share[1:].sum(), "labels": 0.0},
        nodes=np.arange(7, 7 + len(hops)),
        names=tuple(f"n{i}" for i in range(7, 7 + len(hops))),
        hops=hops,
        attributes=share,
        labels=np.zeros(len(hops)),
        predictions=tuple(str(i % 9) for i in range(len(hops))),
        edges=np.array(edges),
    )


def test_a_far_node_is_drawn_with_what_links_it():
    #     0 - 1 - 3, 0 - 2 - 3: of 1 and 2 neither matters; 3 does.
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (1, 4)]
    found = made([0, 1, 1, 2, 2], edges, [0.2, 0.0, 0.1, 0.6, 0.1])
    places, at, parents = hop_tree(found, most=1)
    assert places.tolist() == [0, 2, 3]  # 2 has the larger share of the two.
    assert parents.tolist() == [0, 0, 2]
    np.testing.assert_allclose(np.linalg.norm(at, axis=1), [0, 1, 2])
    places, at, _ = hop_tree(found, most=9)
    assert len(places) == 5
    assert len(np.unique(at.round(6), axis=0)) == 5  # No two in one place.


def test_an_explanation_is_a_table(explained):
    text = repr(explained)
    assert text.startswith(f"Node {explained.node}: {explained.label} (confidence ")
    assert "own features" in text and "labels of neighbours" in text
    page = made([0, 1], [(0, 1)], [0.5, 0.5])._repr_html_()
    assert "a&lt;b&gt;" in page and "<b>" not in page


def test_an_explanation_is_drawn(explained):
    figure = explained.plot(most=4)
    left, right, below = figure.axes
    widths = [bar.get_width() for bar in left.patches]
    assert widths == pytest.approx([100 * v for v in explained.shares.values()])
    names = [text.get_text() for text in below.get_yticklabels()]
    assert names == [column.name for column in explained.features(8)]
    ids = {text.get_text() for text in right.texts}
    best = {str(near.node) for near in explained.neighbors(3)}
    assert best | {str(explained.node)} <= ids
    assert f"{len(explained.nodes) - len(ids)} more not drawn" in right.get_title()
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_more_classes_than_colours_are_drawn():
    count = 20
    found = made([0] + [1] * count, [(0, i) for i in range(1, count + 1)],
                 [0.1] * (count + 1))  # fmt: skip
    said = tuple(f"class {i}" for i in range(count + 1))
    found = dataclasses.replace(found, predictions=said, classes=said)
    right = found.plot().axes[1]
    names = [text.get_text() for text in right.get_legend().get_texts()]
    assert len(names) == 17 and names[-1] == "others"


def test_a_class_has_the_same_colour_in_every_plot():
    classes = [f"class {i}" for i in range(18)]
    colours = class_colours(classes)
    assert len({str(colour) for colour in colours.values()}) == 17
    assert class_colours(classes[:3]) == {c: colours[c] for c in classes[:3]}


def test_features_as_wide_as_coras_can_be_explained():
    # A loop over labels in the program crashed with such features.
    graph, kernel = make_planted(99, 300, 1433, 7), MODELS["nip-mean"]
    config = Config(hidden_size=4)
    net = make_net(kernel, config, sizes_of(graph, kernel, config))
    params = net.initial_weights(threefry.new_key(0))
    (found,) = influences(net, params, graph, None, [3], np.eye(7, dtype=np.float32))
    assert found.attributes.sum() > 0


@pytest.mark.parametrize(
    ("model", "kind", "hops"),
    [
        *[("i-nip-mean", "all", 2), ("gcn", "plain", 2), ("bl-node", "all", 2)],
        *[("i-sgc", "plain", 0), ("i-sgc", "all", 2)],
    ],
)
def test_a_changed_graph_is_explained_from_what_is_kept(model, kind, hops):
    graph = graphs.tiny(kind, sparse=kind == "all")
    short = {"num_iterations": 2, "max_epochs": 2, "hidden_size": 4}
    fitted = fit(graph, model, num_hops=hops, **short)
    now = fitted.update(add_nodes={18: np.ones(7)}, add_edges=[(18, 5), (18, 2)])
    now = now.update(drop_edges=[(18, 2)], labels={5: 1}, features={2: np.ones(7)})
    for node in (18, 5, 3):
        found, whole = now.explain(node), fitted.explain(node, now.graph)
        assert (found.node, found.label) == (whole.node, whole.label)
        assert found.probability == pytest.approx(whole.probability, abs=2e-5)
        assert found.shares == pytest.approx(whole.shares, abs=1e-3)

        def by_name(each):
            numbers = each.hops.tolist(), (each.attributes + each.labels).tolist()
            return dict(zip(each.names, zip(*numbers, strict=True), strict=True))

        mine, theirs = by_name(found), by_name(whole)
        assert mine.keys() == theirs.keys()
        for name, (hop, share) in mine.items():
            assert theirs[name] == (hop, pytest.approx(share, abs=1e-3))
    assert now.num_edges == now.graph.num_edges
    with pytest.raises(ValueError, match="too many"):
        now.explain(5, most_numbers=6)
