"""Node information morphing: the code's decay equals the formulas."""

import dataclasses

import numpy as np
import pytest

from experiments import morphing
from experiments.common import output
from hopf_jax import Config, fit
from hopf_jax.datasets import make_planted, paper_split
from hopf_jax.inference import WholeGraph, predict_logits
from hopf_jax.results import make_net

HOPS = 5


@pytest.mark.parametrize("degree", [1, 3, 6])
@pytest.mark.parametrize("name", morphing.KERNELS)
def test_measured_decay_is_the_formula(name, degree):
    graph = morphing.regular_graph(degree, HOPS)
    kernel, _, share, unscaled = morphing.KERNELS[name]
    for scaled, formula in ((True, share), (False, unscaled or share)):
        measured = morphing.measured_shares(kernel, graph, HOPS, scaled=scaled)
        expected = [formula(k, degree) for k in range(HOPS + 1)]
        assert measured == pytest.approx(expected, rel=1e-5)


def test_the_papers_rates():
    graph = morphing.regular_graph(4, HOPS)

    def shares(name):
        kernel = morphing.KERNELS[name].kernel
        return np.array(morphing.measured_shares(kernel, graph, HOPS))

    k = np.arange(HOPS + 1)
    np.testing.assert_allclose(shares("gcn"), 5.0**-k, rtol=1e-5)
    np.testing.assert_allclose(shares("gcn-mean, no skips"), 2.0**-k, rtol=1e-5)
    np.testing.assert_allclose(shares("nip-mean, no skips")[1:], 0.5, rtol=1e-5)
    # Skips slow the decay of the others, and do not end it.
    assert (shares("gcn-mean")[1:] > shares("gcn-mean, no skips")[1:]).all()
    assert (np.diff(shares("gcn-mean")) < -0.05).all()
    assert (shares("nip-mean") > 0.5).all()


@pytest.fixture(scope="module")
def graph():
    return paper_split(make_planted(60, 150, 6, 3), percent=60)


@pytest.mark.parametrize("model", ["bl-node", "ss-ica"])
def test_what_a_model_cannot_read_has_no_share(graph, model):
    # The labels of neighbours, which ss-ica reads, are constants.
    config = Config(num_hops=2, hidden_size=4, max_epochs=2, dropout=0.0)
    result = fit(graph, model, config, progress=False)
    assert morphing.hop_shares(result, graph, 5)["shares"] == [1.0, 0.0, 0.0]


def test_shares_are_those_of_finite_differences(graph):
    """Moving one feature of one node at a time moves the model's own predictions."""
    config = Config(num_hops=2, hidden_size=4, max_epochs=3, dropout=0.0)
    result = fit(graph, "gcn-mean", config, progress=False)
    net = make_net(result.kernel, config, result.sizes)
    root = np.flatnonzero(graph.test & (np.diff(graph.indptr) > 0))[0]
    only = dataclasses.replace(graph, test=np.arange(graph.num_nodes) == root)

    def logits(features):
        moved = dataclasses.replace(graph, features=features)
        return predict_logits(net, result.weights[0], WholeGraph(moved, 10**6), None)[
            0
        ][root]

    influence, step = np.zeros(graph.num_nodes), 1e-2
    for node, feature in np.ndindex(graph.features.shape):
        up, down = graph.features.copy(), graph.features.copy()
        up[node, feature] += step
        down[node, feature] -= step
        influence[node] += np.abs(logits(up) - logits(down)).sum()
    near = graph.indices[graph.indptr[root] : graph.indptr[root + 1]]
    hop = np.full(graph.num_nodes, 2)
    hop[near], hop[root] = 1, 0
    expected = np.bincount(hop, influence) / influence.sum()
    found = morphing.hop_shares(result, only)
    assert found["nodes"] == 1
    assert found["shares"] == pytest.approx(expected, abs=0.01)


def test_the_command_writes_its_figure(tmp_path, capsys):
    arguments = ["--dataset", "planted", "--models", "nip-mean", "--hops", "1"]
    arguments += ["--max-epochs", "1", "--nodes", "3", "--workdir", str(tmp_path)]
    assert morphing.main(arguments) == 0
    found = output.read_json(tmp_path / "morphing" / "morphing.json")
    assert found["linear"]["kernels"]["gcn"]["largest_relative_error"] < 1e-5
    assert len(found["trained"]["hops"]["1"]["nip-mean"]["shares"]) == 2
    assert (tmp_path / "morphing" / "morphing.png").exists()
    assert "2^-k" in capsys.readouterr().out
