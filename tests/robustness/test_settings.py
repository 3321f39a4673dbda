"""Settings, kernels, splits, datasets and metrics: right, or a ValueError."""

import dataclasses
import math
import typing

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from hopf_jax import (
    MODELS,
    Aggregate,
    Config,
    Execution,
    Gate,
    Graph,
    Kernel,
    datasets,
    load_dataset,
    metrics,
)
from hopf_jax.kernels.aggregators import AGGREGATES, mean
from hopf_jax.kernels.table import find_kernel, kernel_from_json, kernel_to_json
from tests.fuzzing import Refused, anything, attempt, fuzz, scalars

FIELDS = {
    field.name: (kind, typing.get_args(field.type))
    for kind in (Config, Execution)
    for field in dataclasses.fields(kind)
    if field.name != "devices"  # Checked where they are used.
}
CHOICES = [c for _, known in FIELDS.values() for c in known if isinstance(c, str)]


@fuzz(
    60,
    600,
    name=st.sampled_from(sorted(FIELDS)),
    value=st.one_of(anything, st.sampled_from(CHOICES)),
)
def test_anything_as_a_setting(name, value):
    kind, choices = FIELDS[name]
    config = attempt(kind, **{name: value})
    if isinstance(config, Refused):
        assert name in config
        return
    found = getattr(config, name)
    if name == "fanouts":
        assert found is None or all(type(f) is int and f > 0 for f in found)
    elif isinstance(getattr(kind(), name), str):
        assert found in choices
    elif isinstance(getattr(kind(), name), bool):
        assert found is True or found is False
    elif found is None or name == "shared_programs":
        assert getattr(kind(), name) is None  # The library chooses.
        assert found in (None, True, False)
    else:
        assert found >= 0 and math.isfinite(float(found)) and type(found) is not bool
    hash(config)  # Static under jit.


signals = st.lists(st.sampled_from(["h0", "h", "y"]), max_size=3).map(tuple)


@fuzz(
    40,
    400,
    phi=signals,
    psi=signals,
    aggregate=st.sampled_from(sorted(AGGREGATES)),
    flags=st.lists(st.booleans(), min_size=4, max_size=4),
    skip_from=st.integers(-1, 3),
)
def test_a_kernel_is_possible_or_refused(phi, psi, aggregate, flags, skip_from):
    names = ("shared_weights", "concat", "input_layer", "learned_hops")
    options = dict(zip(names, flags, strict=True)) | {"skip_from": skip_from}
    kernel = attempt(Kernel, phi, psi, AGGREGATES[aggregate], **options)
    if isinstance(kernel, Refused):
        return
    assert kernel_from_json(kernel_to_json(kernel)) == kernel
    assert kernel.iterative == ("y" in phi + psi)
    for num_hops in range(4):
        assert 0 <= kernel.reach(num_hops) <= num_hops
        assert kernel.width(5, 3, num_hops) in (3, 5, 6)


KERNEL_FIELDS = st.sampled_from([f.name for f in dataclasses.fields(Kernel)])
NAMES = st.sampled_from(sorted(MODELS))


@fuzz(30, 300, name=KERNEL_FIELDS, value=anything, base=NAMES)
def test_anything_as_a_field_of_a_kernel(name, value, base):
    kernel = attempt(dataclasses.replace, MODELS[base], **{name: value})
    if not isinstance(kernel, Refused):
        hash(kernel)
        assert kernel_from_json(kernel_to_json(kernel)) == kernel


@fuzz(20, 150, scale=anything, power=scalars)
def test_anything_as_a_gate(scale, power):
    gate = attempt(Gate, scale, power)
    if not isinstance(gate, Refused):
        assert math.isfinite(gate.scale) and math.isfinite(gate.power)
        hash(gate)


@fuzz(20, 100, name=scalars, apply=scalars)
def test_anything_as_an_aggregate(name, apply):
    made = attempt(Aggregate, name, mean.apply if apply is None else apply)
    assert isinstance(made, Refused) or (isinstance(name, str) and apply is None)


@fuzz(20, 100, model=anything)
def test_anything_as_a_model(model):
    kernel = attempt(find_kernel, model)
    assert isinstance(kernel, Refused) or kernel is MODELS[model]


# Splits


def check_split(masks, known, percent, given=None):
    n = len(known)
    sizes = {name: int(mask.sum()) for name, mask in masks.items()}
    assert all(mask.shape == (n,) and mask.dtype == bool for mask in masks.values())
    assert sum(sizes.values()) == int(np.any(list(masks.values()), axis=0).sum())
    assert not (masks["train"] & ~known).any()
    assert not (masks["validation"] & ~known).any()
    assert sizes["train"] >= 1 and sizes["validation"] >= 1
    assert sizes["train"] == max(1, math.floor(round(percent * n * 0.008, 6)))
    if given is None:
        assert sizes["test"] == min(known.sum(), max(1, n // 5))


@fuzz(
    40,
    300,
    known=st.lists(st.booleans(), max_size=50),
    percent=st.one_of(st.floats(), st.integers(-1, 101), st.sampled_from([10, 50])),
    fold=st.integers(-1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_drawn_split(known, percent, fold, seed):
    arguments = {"percent": percent, "fold": fold, "seed": seed}
    known = np.array(known, bool)
    masks = attempt(datasets.paper_masks, known, **arguments)
    if not isinstance(masks, Refused):
        check_split(masks, known, percent)
        again = datasets.paper_masks(known, **arguments)
        assert all((masks[name] == again[name]).all() for name in masks)


SPLIT_ARGUMENTS = st.sampled_from(["known", "percent", "fold", "seed", "test"])


@fuzz(40, 300, name=SPLIT_ARGUMENTS, value=anything)
def test_anything_as_an_argument_of_a_split(name, value):
    arguments = {"known": np.ones(20, bool), "percent": 20} | {name: value}
    masks = attempt(datasets.paper_masks, **arguments)
    if not isinstance(masks, Refused):
        known = np.asarray(arguments["known"], bool)
        check_split(masks, known, arguments["percent"], arguments.get("test"))


@fuzz(
    20, 100, name=st.sampled_from(["graph", "percent", "fold", "seed"]), value=anything
)
def test_anything_as_an_argument_of_paper_split(name, value):
    graph = Graph.from_edges([], [], np.ones((30, 1)), np.arange(30) % 2)
    made = attempt(datasets.paper_split, **{"graph": graph} | {name: value})
    if not isinstance(made, Refused):
        assert made.train.any() and made.validation.any() and made.test.any()


SHARES = ["train", "validation", "test"]


@fuzz(
    40,
    300,
    labels=st.lists(st.integers(-1, 5), min_size=1, max_size=60),
    shares=st.lists(st.integers(0, 10), min_size=3, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_shares_of_labelled_nodes(labels, shares, seed):
    labels = np.array(labels)
    graph = Graph.from_edges([], [], np.ones((labels.size, 1)), labels)
    shares = dict(zip(SHARES, np.array(shares) / 10, strict=True))
    made = attempt(datasets.split_graph, graph, **shares, seed=seed)
    if isinstance(made, Refused):
        assert sum(shares.values()) > 1 or (labels < 0).all()
        return
    n = (labels >= 0).sum()
    classes = set(labels[labels >= 0])
    if shares["train"]:
        assert set(labels[made.train]) == classes
        assert made.train.sum() >= min(n, round(shares["train"] * n - 1))
        if sum(shares.values()) == 1:
            assert (made.train | made.validation | made.test).sum() == n
    for name in SHARES[1:]:
        assert getattr(made, name).sum() <= max(1, shares[name] * n + 0.5)
    again = datasets.split_graph(graph, **shares, seed=seed)
    assert all((getattr(made, s) == getattr(again, s)).all() for s in SHARES)


@fuzz(
    20,
    100,
    name=st.sampled_from(["graph", *SHARES, "seed", "stratified"]),
    value=anything,
)
def test_anything_as_an_argument_of_split_graph(name, value):
    graph = Graph.from_edges([], [], np.ones((30, 1)), np.arange(30) % 2)
    shares = {"train": 0.5, "validation": 0.3, "test": 0.2}
    made = attempt(datasets.split_graph, **{"graph": graph} | shares | {name: value})
    if not isinstance(made, Refused):
        assert made.train.any() or value == 0


# Datasets


LOAD_ARGUMENTS = "name", "fold", "percent", "seed", "split", "normalize", "data_dir"


@fuzz(20, 200, name=st.sampled_from(LOAD_ARGUMENTS), value=anything)
def test_anything_as_an_argument_of_load_dataset(name, value):
    graph = attempt(load_dataset, **{"name": "planted"} | {name: value})
    if not isinstance(graph, Refused):
        assert graph.num_nodes in (6, 1000) and graph.train.any()


@fuzz(
    20,
    150,
    make=st.sampled_from(["make_planted", "make_random"]),
    sizes=st.lists(st.integers(-2, 60), min_size=4, max_size=4),
    seed=st.integers(0, 9),
)
def test_synthetic_graphs_of_any_size(make, sizes, seed):
    graph = attempt(getattr(datasets, make), *sizes, seed=seed)
    if not isinstance(graph, Refused):
        num_nodes, num_edges, num_features, num_labels = sizes
        assert graph.num_nodes == num_nodes and graph.num_edges == 2 * num_edges
        assert graph.num_features == num_features and graph.num_labels == num_labels


SIZES = {"num_nodes": 40, "num_edges": 60, "num_features": 3, "num_labels": 2}
PLANTED_ARGUMENTS = st.sampled_from([*SIZES, "seed", "homophily", "noise"])


@fuzz(10, 60, name=PLANTED_ARGUMENTS, value=anything)
def test_anything_as_an_argument_of_a_synthetic_graph(name, value):
    if isinstance(value, int) and value > 100:
        return  # Valid, but too large for this machine.
    graph = attempt(datasets.make_planted, **SIZES | {name: value})
    if not isinstance(graph, Refused):
        assert np.isfinite(graph.features).all()
    graph = attempt(datasets.make_chain, value)
    assert isinstance(graph, Refused) or graph.num_nodes == value


finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
three_columns = st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=6)


@fuzz(20, 150, rows=three_columns, sparse=st.booleans())
def test_rows_of_any_size_are_normalized(rows, sparse):
    matrix = np.array(rows, np.float32)
    made = datasets.normalize_rows(sp.csr_array(matrix) if sparse else matrix)
    made = made.toarray() if sparse else made
    some = matrix.any(axis=1)
    np.testing.assert_allclose(abs(made).sum(axis=1), some, rtol=1e-4)


# Metrics

SCORES = st.sampled_from(["one_hot", "label_counts", "f1_scores", "f1_from_counts"])
triples = st.lists(anything, min_size=3, max_size=3)


@fuzz(60, 500, function=SCORES, values=triples, alike=st.booleans())
def test_anything_as_labels_to_score(function, values, alike):
    if alike:
        values = values[:1] * 3
    number = 3 if function == "f1_from_counts" else 2
    made = attempt(getattr(metrics, function), *values[:number])
    if isinstance(made, dict):
        assert all(0 <= score <= 1 for score in made.values())
    elif function == "one_hot" and not isinstance(made, Refused):
        assert (made.sum(axis=1) == 1).all() and made.shape[1] == values[1]


tables = st.dictionaries(
    st.sampled_from("abcd"),
    st.dictionaries(
        st.sampled_from("xyz"), st.one_of(st.floats(0, 100), scalars), max_size=3
    ),
    max_size=4,
)


@fuzz(40, 300, table=st.one_of(tables, anything), data=st.data())
def test_any_table_of_scores(table, data):
    name = data.draw(
        st.sampled_from(["shortfall", "average_ranks", "wins", "friedman", "wilcoxon"])
    )
    rest = ("a", "b") if name == "wilcoxon" else ()
    found = attempt(getattr(metrics, name), table, *rest)
    if isinstance(found, dict):
        assert list(found) == list(table) and all(map(math.isfinite, found.values()))
    elif not isinstance(found, Refused):
        assert math.isfinite(found.statistic) and 0 <= found.p_value <= 1


rows_of_three = st.lists(st.tuples(*[st.integers(1, 9)] * 3), min_size=3, max_size=5)


@fuzz(20, 200, scores=rows_of_three, relative=st.booleans())
def test_tables_of_scores_by_hand(scores, relative):
    table = {
        f"m{i}": dict(zip("xyz", row, strict=True)) for i, row in enumerate(scores)
    }
    columns = list(zip(*scores, strict=True))
    best = np.max(scores, axis=0)
    for i, row in enumerate(scores):
        gaps = 100 * (best - row) / best
        np.testing.assert_allclose(metrics.shortfall(table)[f"m{i}"], gaps.mean())
        assert metrics.wins(table)[f"m{i}"] == (best == row).sum()
        ranks = [
            sum(other > v for other in column) + (column.count(v) + 1) / 2
            for v, column in zip(row, columns, strict=True)
        ]
        np.testing.assert_allclose(
            metrics.average_ranks(table)[f"m{i}"], np.mean(ranks)
        )
    for outcome in (
        metrics.friedman(table),
        metrics.wilcoxon(table, "m0", "m1", relative=relative),
    ):
        assert math.isfinite(outcome.statistic) and 0 <= outcome.p_value <= 1


@fuzz(20, 100, arguments=st.tuples(scalars, scalars, st.one_of(st.just(0.05), scalars)))
def test_any_critical_difference(arguments):
    found = attempt(metrics.critical_difference, *arguments)
    assert isinstance(found, Refused) or (math.isfinite(found) and found > 0)
