"""Halos, hosts, mapped graphs, and the page that says what they took."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import hopf_jax
from experiments import folders, halos, large, partitioned, scaling_doc, weak_scaling
from hopf_jax.datasets import make_planted
from hopf_jax.inference.prediction import WholeGraph, predict_logits
from tests import graphs


def path_graph(count=6):
    nodes = np.arange(count)
    return hopf_jax.Graph.from_edges(nodes[:-1], nodes[1:], np.ones((count, 1)))


def test_halos_of_a_path():
    found = halos.measure(path_graph(), np.array([0, 0, 0, 1, 1, 1]), 3)
    np.testing.assert_allclose(found["nodes"], np.round([8 / 6, 10 / 6, 2], 4))
    # Into the own nodes; into those and their neighbours (5 + 2 each); ...
    np.testing.assert_allclose(found["arcs"], np.round([1, 14 / 10, 18 / 10], 4))
    np.testing.assert_allclose(found["most"], np.round([4 / 6, 5 / 6, 1], 4))


def test_parts_are_even_and_metis_cuts_less():
    graph = make_planted(300, 1200, homophily=0.98, seed=1)
    for kind in ("metis", "random"):
        sizes = np.bincount(halos.part(graph, kind, 4))
        assert len(sizes) == 4 and sizes.max() < 90
    cut, shuffled = (
        halos.measure(graph, halos.part(graph, kind, 4), 1)["nodes"][0]
        for kind in ("metis", "random")
    )
    assert 1 < cut < 0.8 * shuffled


def test_hosts_predict_as_the_whole_graph_does():
    graph = make_planted(120, 360, 6, 3, homophily=0.9, seed=3)
    graph = dataclasses.replace(graph, features=sp.csr_array(graph.features))
    config = hopf_jax.Config(
        num_hops=1,
        hidden_size=4,
        num_iterations=2,
        batch_size=3,
        batches_per_step=2,
        max_epochs=3,
        min_epochs=1,
    )
    found = partitioned.simulate(graph, halos.metis(graph, 2), config)
    assert found["difference"] <= 1e-5
    assert 1 / 2 < found["held_share"] < 1
    assert found["received_bytes"] % (4 * 3) == 0 < found["received_bytes"]


def test_a_halo_too_small_would_show():
    graph = graphs.tiny("plain")
    net, params = graphs.net_of("gcn")
    own = np.array([1, 4])
    want = predict_logits(net, params, WholeGraph(graph, 10_000), None)[0][own]
    for halo, right in ((2, True), (1, False)):
        held = partitioned.Host(graph, own, halo).graph
        whole = WholeGraph(held, 10_000, own, 2)
        logits = predict_logits(net, params, whole, None)[0]
        assert np.allclose(logits, want, atol=1e-5) == right


def test_a_mapped_graph_is_measured(tmp_path):
    # In a process of its own: this one holds what other tests compiled.
    sizes = {"nodes": 3000, "edges": 9000, "train": 60, "hidden": 4, "hops": 1}
    argv = [f"--{name}={value}" for name, value in sizes.items()]
    argv += ["--iterations=1", f"--workdir={tmp_path}", "--most=0.01"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.large", *argv],
        cwd=folders.ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr  # No process is that small.
    found = json.loads((tmp_path / "large" / "large.json").read_text())
    assert found["graph"]["nodes"] == 3000
    assert 0 < found["peak_RssAnon_bytes"] < found["peak_VmHWM_bytes"] < 6e9
    assert found["peak_RssAnon_bytes"] < found["bound_bytes"]


def test_the_bound_grows_with_the_nodes():
    assert large.bound(0, 5, 16) == 1e9
    each = 4 * (7 * 5 + 3 * 16) + 64
    assert large.bound(10**7, 5, 16) == 1e9 + each * 10**7 < 6e9


@pytest.mark.slow
def test_weak_scaling_is_measured(tmp_path, capfd):
    argv = ["--nodes=500", "--edges=1500", "--roots=256", "--hidden=4", "--epochs=2"]
    assert weak_scaling.main([*argv, f"--workdir={tmp_path}"]) == 0
    assert "2 processes: 512 roots, 1 steps an epoch" in capfd.readouterr().out


# The page


def test_the_page_says_what_was_measured():
    text = scaling_doc.DOC.read_text()
    assert scaling_doc.render(text, scaling_doc.read()) == text


def test_a_table_without_a_place_is_told():
    with pytest.raises(ValueError, match="has 0 places for the table 'halos'"):
        scaling_doc.render("", scaling_doc.read())


def test_the_count_at_random_is_an_upper_bound():
    graph = make_planted(2000, 6000, seed=5)
    size = scaling_doc.Size(graph.num_nodes, graph.num_edges, 1, 1)
    for hosts in (2, 8):
        measured = halos.measure(graph, halos.at_random(graph, hosts), 2)["nodes"]
        bounds = [scaling_doc.held_at_random(size, hosts, c) for c in (1, 2)]
        assert measured[0] < bounds[0] < 1.25 * measured[0]
        assert measured[1] < bounds[1]
