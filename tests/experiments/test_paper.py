"""Does what the paper prints follow from the tables it prints?"""

import math

import pytest

from experiments import paper
from hopf_jax import metrics

TABLE = paper.TRANSDUCTIVE
BASELINES = ("bl-node", "bl-neigh")


def better(model, other):
    return {name for name in TABLE[model] if TABLE[model][name] > TABLE[other][name]}


def gain(model, other, dataset):
    return TABLE[model][dataset] - TABLE[other][dataset]


def test_tables_name_the_same_models_and_datasets():
    assert set(paper.SETTINGS) == set(paper.DATASETS) == set(paper.TOP_TWO)
    assert all(set(row) == set(paper.DATASETS) for row in TABLE.values())
    assert set(paper.AGGREGATES) == set(TABLE)
    assert set(paper.INDUCTIVE) == set(TABLE) - {"gcn-s"}
    for dataset, row in paper.AUTHORS_PROGRAM.items():
        assert dataset in paper.DATASETS and set(row) <= set(TABLE)


@pytest.mark.parametrize("dataset", paper.DATASETS)
def test_bold_is_the_top_two(dataset):
    # Also finds a mistyped score, if it is near the top.
    second = sorted((row[dataset] for row in TABLE.values()), reverse=True)[1]
    top = {model for model, row in TABLE.items() if row[dataset] >= second}
    assert top == paper.TOP_TWO[dataset]


@pytest.mark.parametrize("model", TABLE)
def test_shortfall_is_as_printed(model):
    ours = metrics.shortfall(TABLE)[model]
    assert round(ours, 1) == paper.AGGREGATES[model].shortfall


@pytest.mark.parametrize("model", TABLE)
def test_rank_is_as_printed(model):
    ours = metrics.average_ranks(TABLE, ties="ordinal")[model]
    printed = paper.AGGREGATES[model].rank
    if model == paper.RANK_CUT_OFF:
        assert round(ours, 2) == 2.82
        assert math.floor(100 * ours) / 100 == printed == 2.81
    else:
        assert round(ours, 2) == printed


def test_ranks_with_ties_shared_differ_in_the_two_tied_models_only():
    shared = metrics.average_ranks(TABLE)
    ordinal = metrics.average_ranks(TABLE, ties="ordinal")
    moved = {model for model in TABLE if shared[model] != ordinal[model]}
    assert moved == {"gs-mean", "nip-mean"}
    assert shared["gs-mean"] == pytest.approx(6.045, abs=5e-4)
    assert shared["nip-mean"] == pytest.approx(3.955, abs=5e-4)


def test_wins_are_as_printed():
    wins = metrics.wins(TABLE)
    assert {model: wins[model] for model in paper.WINS} == dict(paper.WINS)
    others = {model: n for model, n in wins.items() if n and model not in paper.WINS}
    assert others == {"bl-node": 1, "gcn": 1, "gcn-s": 1, "gs-max": 1}


def test_models_differ_by_friedman():
    result = metrics.friedman(TABLE)
    assert result.p_value < paper.FRIEDMAN_P_BELOW
    assert result.statistic == pytest.approx(39.09, abs=5e-3)


def test_critical_difference_tells_few_models_apart():
    # The paper has no such test. The best model's rank is nearer than this to most.
    difference = metrics.critical_difference(len(TABLE), len(paper.DATASETS))
    assert difference == pytest.approx(4.55, abs=5e-3)
    ranks = metrics.average_ranks(TABLE)
    told = {m for m in TABLE if ranks[m] - ranks["i-nip-mean"] > difference}
    assert told == {"bl-node", "bl-neigh", "gs-lstm"}


@pytest.mark.parametrize("claim", paper.COMPARISONS, ids=lambda c: c.model)
def test_wins_of_pairs_are_as_printed(claim):
    assert len(better(claim.model, claim.other)) == claim.wins


@pytest.mark.parametrize("claim", paper.COMPARISONS, ids=lambda c: c.model)
def test_p_values_of_pairs(claim):
    pair = (TABLE, claim.model, claim.other)
    plain = metrics.wilcoxon(*pair).p_value
    relative = metrics.wilcoxon(*pair, relative=True).p_value
    assert plain == pytest.approx(claim.p_difference, abs=5e-5)
    assert relative == pytest.approx(claim.p_relative, abs=5e-5)
    if claim.p_below is not None:
        assert relative < claim.p_below


def bounds_met(**variant):
    claims = [claim for claim in paper.COMPARISONS if claim.p_below is not None]
    return {
        (claim.model, claim.other)
        for claim in claims
        if metrics.wilcoxon(TABLE, claim.model, claim.other, **variant).p_value
        < claim.p_below
    }


def test_which_variant_of_wilcoxon_gives_the_printed_bounds():
    nip, inip, ica = [
        (claim.model, claim.other) for claim in paper.COMPARISONS if claim.p_below
    ]
    assert bounds_met(relative=True) == {nip, inip, ica}
    assert bounds_met(relative=True, method="asymptotic") == {nip, inip, ica}
    assert bounds_met() == {ica}
    assert bounds_met(method="asymptotic") == {inip, ica}
    for relative in (False, True):
        for method in ("exact", "asymptotic"):
            two_sided = {"alternative": "two-sided", "relative": relative}
            assert bounds_met(method=method, **two_sided) == set()


def test_lowest_shortfall():
    shortfalls = metrics.shortfall(TABLE)
    assert min(shortfalls, key=shortfalls.get) == "i-nip-mean"
    del shortfalls["i-nip-mean"], shortfalls["ss-ica"]  # the iterative ones
    assert min(shortfalls, key=shortfalls.get) == "nip-mean"


def test_where_neighbours_help():
    neighbours = better("bl-neigh", "bl-node")
    assert set(paper.NEIGHBOURS_HELP) - neighbours == {"pubmed"}  # the text errs
    assert set(paper.NEIGHBOURS_ABOUT_EQUAL) <= neighbours
    assert not neighbours & set(paper.NEIGHBOURS_HURT)
    assert not better("gcn", "bl-node") & set(paper.NEIGHBOURS_HURT)


def test_collective_models_do_not_all_outperform_the_baselines():
    # "In datasets, where BL_NEIGH significantly outperform BL_NODE, all CC models
    # ou[t]perform both these baselines": not so in the table, for these.
    exceptions = {
        dataset: {
            model
            for model, row in TABLE.items()
            if model not in BASELINES
            and row[dataset] <= max(TABLE[name][dataset] for name in BASELINES)
        }
        for dataset in paper.NEIGHBOURS_HELP
    }
    most = set(TABLE) - {*BASELINES}
    assert exceptions == {
        "cora": most - {"gcn-s", "i-nip-mean"},
        "citeseer": {"gs-lstm", "ss-ica"},
        "cora2": most - {"gcn", "nip-mean", "i-nip-mean"},
        "pubmed": {"gs-lstm"},
        "human": {"gcn", "ss-ica"},
    }


@pytest.mark.parametrize(
    (
        "model",
        "other",
        "datasets",
        "low",
        "high",
    ),  # the text's "≈ low - high %", points
    [
        ("gcn-s", "gcn", ("blog", "facebook", "movie", "amazon"), 5, 13),
        ("gcn-s", "bl-node", ("amazon",), 9, 9),
        ("gs-mean", "gcn-mean", ("reddit", "amazon"), 5, 5),
        ("nip-mean", "gcn-mean", ("human", "reddit", "amazon"), 3, 6),
        ("i-nip-mean", "nip-mean", ("cora2", "reddit", "amazon", "yeast"), 3, 8),
        ("i-nip-mean", "ss-ica", ("amazon",), 10, 10),
        ("i-nip-mean", "ss-ica", ("human",), 25, 25),
    ],
)
def test_gains_of_the_text(model, other, datasets, low, high):
    for dataset in datasets:
        assert low - 0.8 < gain(model, other, dataset) < high + 0.8


def test_gains_of_the_text_on_new_tissues():
    f1 = paper.INDUCTIVE
    assert f1["bl-neigh"] - f1["bl-node"] == pytest.approx(40, abs=1)
    assert max(f1.values()) - f1["bl-neigh"] == pytest.approx(8, abs=1)
    for model in ("nip-mean", "i-nip-mean"):
        assert f1[model] - f1["gcn-mean"] == pytest.approx(6, abs=0.5)


@pytest.mark.parametrize("dataset", paper.SETTINGS)
def test_hops_and_fanouts(dataset):
    settings = paper.SETTINGS[dataset]
    deeper = {"amazon": 3, "cora2": 4, "human": 4}
    assert settings.num_hops == deeper.get(dataset, 2)
    assert settings.fanouts == ((25, 10) if dataset == "reddit" else None)
