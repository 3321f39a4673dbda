"""Costs that depend on no clock: compilations, padding, FLOPs and bytes."""

import collections
import dataclasses

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from experiments import paper
from experiments.benchmark import cases, library_worker, limits
from hopf_jax import MODELS, Config, Execution, fit
from hopf_jax.batching.loader import Loader
from hopf_jax.datasets import load_dataset, make_planted, make_random
from hopf_jax.fitting import sizes_of
from hopf_jax.kernels import threefry
from hopf_jax.learning.epoch import Program, first_state, train_groups
from hopf_jax.learning.loss import Inputs, Objective, label_weights, zero_totals
from hopf_jax.learning.plan import make_plan
from hopf_jax.results.result import make_net
from tests import graphs

MOST_PROGRAMS = 6  # All that XLA compiles in a whole fit, small ones included.


@pytest.fixture
def programs():
    """Compilations by name, from here on, with nothing compiled before."""
    jax.clear_caches()
    found = collections.Counter()
    active = [True]

    def count(event, seconds, *, fun_name="", **others):
        del seconds, others
        if active and event.endswith("backend_compile_duration"):
            found[fun_name.removeprefix("jit(").removesuffix(")")] += 1

    jax.monitoring.register_event_duration_secs_listener(count)
    yield found
    active.clear()


def check_programs(programs):
    assert programs["resident_epoch"] == 1
    assert programs["_predict_at_once"] == 1
    assert sum(programs.values()) <= MOST_PROGRAMS, programs


@pytest.mark.parametrize("ahead", [False, True])
def test_a_whole_fit_compiles_few_programs(programs, ahead):
    graph = make_planted(200, 600, 8, 3, homophily=0.9, seed=1)
    if not ahead:
        graph = dataclasses.replace(graph, features=sp.csr_array(graph.features))
    config = Config(
        num_hops=2,
        hidden_size=4,
        num_iterations=3,
        max_epochs=4,
        min_epochs=2,
        patience=1,
        dropout=0.0 if ahead else 0.5,
        training_summaries="as-printed" if ahead else "masked",
    )
    plan = make_plan(graph, MODELS["i-nip-mean"], config, Execution())
    assert plan.precompute == ahead
    fit(graph, "i-nip-mean", config, progress=False)
    # What is read of features is computed by one program, of summaries by another.
    assert programs["_aggregate"] == 2 * ahead
    check_programs(programs)


@pytest.mark.slow
@graphs.needs("pubmed")
def test_a_whole_fit_on_pubmed_compiles_few_programs(programs):
    config = dataclasses.replace(
        paper.config_for("pubmed"), max_epochs=6, min_epochs=2, patience=1
    )
    fit(load_dataset("pubmed"), "i-nip-mean", config, progress=False)
    check_programs(programs)


def loader_of(graph, config, model="nip-mean"):
    how = make_plan(graph, MODELS[model], config, Execution()).training
    return Loader(graph, np.flatnonzero(graph.train), how, seed=0)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cora K=2", marks=graphs.needs("cora")),
        "synthetic K=1",
        pytest.param("pubmed K=2", marks=[pytest.mark.slow, graphs.needs("pubmed")]),
        pytest.param("synthetic K=2", marks=pytest.mark.slow),
        pytest.param(
            "human-go2022 K=2", marks=[pytest.mark.slow, graphs.needs("human-go2022")]
        ),
    ],
)
def test_padding_is_below_a_quarter(name):
    (case,) = (case for case in cases.CASES if case.name == name)
    graph = case.load()
    for precompute in (False, True):
        config = dataclasses.replace(case.config, precompute=precompute)
        loader = loader_of(graph, config)
        counted = library_worker.counts(loader)
        assert counted["node_waste"] < 0.25, loader.layouts
        assert counted["edge_waste"] < 0.25, loader.layouts


@pytest.mark.parametrize("ahead", [False, True])
def test_flops_of_an_epoch_are_near_the_counted_work(ahead, optimized):
    graph, row = make_random(2000, 10_000, 20, 5), MODELS["nip-mean"]
    config = Config(
        num_hops=2, hidden_size=32, batch_size=64, dropout=0.0, precompute=ahead
    )
    net = make_net(row, config, sizes_of(graph, row, config))
    loader = loader_of(graph, config)
    params = net.initial_weights(threefry.new_key(0))
    objective = Objective(False, 0.0, 5.0)
    omega = label_weights(graph.labels[graph.train])
    known = (np.zeros((graph.num_nodes, 20), np.float32),) if ahead else None
    program = train_groups.lower(
        Program(net, objective),
        loader.groups(1),
        (first_state(objective, params), zero_totals(5)),
        Inputs(graph.features, None, omega, known),
        threefry.fold_in(threefry.new_key(0), np.arange(loader.num_batches)),
        np.float32(0.01),
    ).compile()
    analysis = program.cost_analysis()
    # XLA counts a loop's body once, one batch; a library's sums over edges, never.
    found = analysis["flops"]
    counted = limits.work(loader.sizes, 2, 20, 32, 5, ahead=ahead)
    batch = 1e9 * counted["gflop"] / loader.num_batches
    assert 0.5 * batch < found < 2 * batch
    kept = library_worker.counts(loader)["resident_bytes"]
    assert kept <= loader.nbytes < 1.3 * kept


def test_sparse_features_are_gone_through_once_each_way():
    graph = make_planted(200, 600, 8, 3, homophily=0.9, seed=1)
    graph = dataclasses.replace(graph, features=sp.csr_array(graph.features))
    config = Config(num_hops=2, hidden_size=4, batch_size=32)
    row = MODELS["nip-mean"]
    net = make_net(row, config, sizes_of(graph, row, config))
    loader = loader_of(graph, config)
    objective = Objective(False, config.l2, config.clip)
    params = net.initial_weights(threefry.new_key(0))
    carry = first_state(objective, params), zero_totals(3)
    inputs = Inputs(None, None, label_weights(graph.labels[graph.train]))
    rate = np.float32(0.01)
    words = threefry.fold_in(threefry.new_key(0), np.arange(loader.num_batches))
    groups = loader.groups(1)
    text = train_groups.lower(
        Program(net, objective), groups, carry, inputs, words, rate
    ).as_text()
    # X [W_phi | W_psi] and its gradient; A h at two hops, and theirs.
    assert text.count("cpu_csr_sparse_dense") == 6


def test_other_numbers_and_seeds_compile_nothing(programs):
    graph = make_planted(200, 600, 8, 3, homophily=0.9, seed=1)
    settings = {"hidden_size": 4, "max_epochs": 2, "min_epochs": 1, "progress": False}
    fit(graph, "gcn", **settings)
    assert programs["resident_epoch"] == programs["_predict_at_once"] == 1
    programs.clear()
    fit(graph, "gcn", **settings, learning_rate=0.02, l2=1e-4, dropout=0.3, seed=1)
    assert not programs
