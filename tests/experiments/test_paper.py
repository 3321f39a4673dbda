"""What the paper prints follows from its tables, and aggregates from ours."""

import math

import pytest

from experiments import paper
from experiments.common import aggregates, output, report
from experiments.common.drawing import _indistinct
from hopf_jax import metrics

TABLE = paper.TRANSDUCTIVE
SUMMARY = aggregates.summary(TABLE)
BASELINES = ("bl-node", "bl-neigh")


def better(model, other):
    return {name for name in TABLE[model] if TABLE[model][name] > TABLE[other][name]}


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
def test_shortfall_rank_and_wins_are_as_printed(model):
    printed = paper.AGGREGATES[model]
    assert round(SUMMARY["shortfall"][model], 1) == printed.shortfall
    # The paper breaks its one tie in the order of its rows; ours is shared.
    ordinal = metrics.average_ranks(TABLE, ties="ordinal")[model]
    if model == paper.RANK_CUT_OFF:
        assert round(ordinal, 2) == 2.82
        assert math.floor(100 * ordinal) / 100 == printed.rank == 2.81
    else:
        assert round(ordinal, 2) == printed.rank
    tied = {"gs-mean": 6.045, "nip-mean": 3.955}
    shared = SUMMARY["rank"][model]
    assert shared == pytest.approx(tied.get(model, ordinal), abs=5e-4)
    others = {"bl-node": 1, "gcn": 1, "gcn-s": 1, "gs-max": 1}  # Not in the text.
    assert SUMMARY["wins"][model] == (dict(paper.WINS) | others).get(model, 0)


def test_models_differ_by_friedman():
    assert SUMMARY["friedman"]["p"] < paper.FRIEDMAN_P_BELOW
    assert SUMMARY["friedman"]["statistic"] == pytest.approx(39.09, abs=5e-3)


def test_critical_difference_separates_few_models():
    # The paper has no such test. The best model's rank is nearer than this to most.
    difference = SUMMARY["critical_difference"]
    assert difference == pytest.approx(4.55, abs=5e-3)
    ranks = SUMMARY["rank"]
    separate = {m for m in TABLE if ranks[m] - ranks["i-nip-mean"] > difference}
    assert separate == {"bl-node", "bl-neigh", "gs-lstm"}
    assert _indistinct([1.0, 1.5, 3.0, 3.2], 1.0) == [(0, 1), (2, 3)]
    assert _indistinct([1.0, 2.0, 3.0], 1.5) == [(0, 1), (1, 2)]
    assert _indistinct([1.0, 2.0], 0.5) == []


@pytest.mark.parametrize("place", range(len(paper.COMPARISONS)))
def test_pairs_are_as_printed(place):
    found, printed = SUMMARY["wilcoxon"][place], paper.COMPARISONS[place]
    assert found["better"] == printed.wins == len(better(printed.model, printed.other))
    assert found["p"] == pytest.approx(printed.p_difference, abs=5e-5)
    assert found["p_relative"] == pytest.approx(printed.p_relative, abs=5e-5)
    if printed.p_below is not None:
        assert found["p_relative"] < printed.p_below


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


def test_where_neighbours_help():
    neighbours = better("bl-neigh", "bl-node")
    assert set(paper.NEIGHBOURS_HELP) - neighbours == {"pubmed"}  # The text errs.
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
    ("model", "other", "datasets", "low", "high"),  # The text's "≈ low - high %".
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
        gain = TABLE[model][dataset] - TABLE[other][dataset]
        assert low - 0.8 < gain < high + 0.8


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


# Aggregates over the tables of reproduce


def as_tables(scores, datasets):
    """What reproduce would have written, had it measured these scores."""
    return {
        name: {
            "models": {
                model: {"micro_f1": {"mean": row[name]}, "paper": row[name]}
                for model, row in scores.items()
            }
        }
        for name in datasets
    }


def test_the_papers_findings_hold_on_its_own_numbers():
    found = aggregates.over(as_tables(TABLE, paper.DATASETS))
    findings = {f["statement"]: f for f in found["findings"]}
    assert len(findings) == len(aggregates.FINDINGS)
    failing = [s for s, f in findings.items() if not f["ours"]["holds"]]
    # BL_NEIGH is not better on PubMed, though the text says so (experiments/paper.py).
    assert len(failing) == 1 and "BL_NEIGH" in failing[0]
    assert all(f["ours"] == f["paper"] == f["paper_all"] for f in findings.values())


def test_models_that_a_dataset_lacks_are_left_out(tmp_path):
    tables = as_tables(TABLE, ["cora", "yeast"])
    del tables["yeast"]["models"]["gcn"]
    found = aggregates.over(tables)
    assert "gcn" not in found["ours"]["rank"] and "gcn" in found["models"]
    assert found["models"]["gcn"]["yeast"] is None
    text = report.write_aggregate(tmp_path, found | output.provenance(["x"]))
    assert "| gcn-s | 77.52 (77.52) |" in text
    assert "| gcn | 76.97 (76.97) | - | - | - | - |" in text
    tables["yeast"]["models"] = {}
    found = aggregates.over(tables) | output.provenance(["x"])
    assert "nothing to aggregate" in report.write_aggregate(tmp_path, found)
