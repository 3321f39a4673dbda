"""The paper's Table 1 as data, and rows of one's own."""

import dataclasses
import json

import numpy as np
import pytest

from hopf_jax import MODELS, Aggregate, Gate, Kernel
from hopf_jax.kernels.aggregators import lstm, mean, pooled_max, symmetric, total
from hopf_jax.kernels.table import find_kernel, kernel_from_json, kernel_to_json

# model: phi, F(A), psi, W_phi = W_psi?, iterative?, skips from
TABLE_1 = {
    "bl-node": (("h0",), None, (), False, False, 2),
    "bl-neigh": ((), "mean", ("h",), False, False, 2),
    "ss-ica": (("h0",), "mean", ("y",), False, True, 0),
    "wl": (("h",), "sum", ("h",), False, False, 0),
    "gcn": (("h",), "symmetric", ("h",), True, False, 0),
    "gcn-s": (("h",), "symmetric", ("h",), True, False, 2),
    "gcn-mean": (("h",), "mean", ("h",), True, False, 2),
    "gs-mean": (("h",), "mean", ("h",), False, False, 0),
    "gs-max": (("h",), "max", ("h",), False, False, 0),
    "gs-lstm": (("h",), "lstm-32", ("h",), False, False, 0),
    "nip-mean": (("h0",), "mean", ("h",), False, False, 2),
    "i-nip-mean": (("h0",), "mean", ("h", "y"), False, True, 2),
    "rwr": (("h0",), "mean", ("h",), False, False, 0),
}
# Later models, in the same columns; then their input layer and what else they have.
LATER = {
    "sgc": (("h",), "symmetric", ("h",), False, False, 0),
    "i-sgc": (("h",), "symmetric", ("h",), False, True, 0),
    "i-sgc-mean": (("h",), "symmetric", ("h",), False, True, 0),
    "sign": (("h",), "symmetric", ("h",), False, False, 0),
    "appnp": (("h0",), "symmetric-loops", ("h",), False, False, 0),
    "gpr-gnn": (("h",), "symmetric", ("h",), False, False, 0),
    "gcnii": (("h0",), "symmetric-loops", ("h",), True, False, 0),
    "gat": ((), "attention", ("h",), False, False, 0),
    "gin": (("h",), "sum", ("h",), True, False, 0),
}
WITH_INPUT_LAYER = {"rwr", "appnp", "gpr-gnn", "gcnii"}
LINEAR = {"wl", "rwr", "sgc", "i-sgc", "i-sgc-mean", "sign", "appnp", "gpr-gnn"}


def test_the_rows_are_the_papers_and_those_of_later_models():
    assert set(MODELS) == set(TABLE_1 | LATER)
    for name, (phi, aggregate, psi, shared, iterative, skip) in (
        TABLE_1 | LATER
    ).items():
        row = MODELS[name]
        assert (row.phi, row.psi) == (phi, psi), name
        assert aggregate in (None, row.aggregate.name), name
        assert row.shared_weights == shared, name
        assert row.iterative == iterative, name
        assert row.skip_from == skip, name
        assert row.concat == name.startswith("gs-"), name
        assert row.input_layer == (name in WITH_INPUT_LAYER), name
        assert row.learned_hops == (name not in LINEAR), name
        assert row.second_layer == (name == "gin"), name
        assert row.identity == (0.5 if name == "gcnii" else 0), name
        reads_out = {"i-sgc": "ends", "sign": "each", "gpr-gnn": "weighted"}.get(
            name, "last"
        )
        assert row.reads_out == reads_out, name
        assert row.votes == {"i-sgc": total, "i-sgc-mean": mean}.get(name), name


def test_gates():
    degree = np.array([0.0, 1, 3], np.float32)
    for name, row in MODELS.items():
        if name in {"gcn", "gcn-s", "sgc", "i-sgc", "i-sgc-mean", "sign", "gpr-gnn"}:
            np.testing.assert_allclose(row.alpha(degree), [1, 1 / 2, 1 / 4])
        elif name in {"rwr", "appnp", "gcnii"}:
            assert row.alpha(degree) + row.beta(degree) == 1  # Eq. 8.
        else:
            assert row.alpha(degree) == row.beta(degree) == 1
    np.testing.assert_allclose(Gate(3, 0.5)(degree), 3 * np.sqrt(degree + 1))
    assert isinstance(Gate(2)(degree), float)
    assert {name for name, row in MODELS.items() if row.alpha.learned} == {"gin"}
    learned = Gate(2, 0.5, learned=True)(degree, np.array([3], np.float32))
    np.testing.assert_allclose(learned, 3 * np.sqrt(degree + 1))


def test_reach_and_depth():
    reach = {name: row.reach(3) for name, row in MODELS.items()}
    assert reach.pop("bl-node") == 0
    assert reach.pop("ss-ica") == 1
    assert set(reach.values()) == {3}
    layers = {name: row.num_layers(3) for name, row in MODELS.items()}
    assert layers.pop("ss-ica") == 1
    assert set(layers.values()) == {3}
    for row in MODELS.values():
        assert row.num_layers(0) == 0
        assert row.reach(0) == (row.votes is not None)  # The labels of neighbours.


def test_rows_are_hashable_and_fixed():
    assert len({hash(row) for row in MODELS.values()}) == len(MODELS)
    with pytest.raises(TypeError):
        MODELS["mine"] = MODELS["gcn"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        MODELS["gcn"].concat = True


def test_rows_are_found_by_name_or_given():
    assert find_kernel("gcn") is MODELS["gcn"]
    mine = Kernel(("h",), (), mean)
    assert find_kernel(mine) is mine
    with pytest.raises(
        ValueError,
        match=r"No model is called 'GCN'\. Did you mean 'gcn'\? Known: bl-node",
    ):
        find_kernel("GCN")


@pytest.mark.parametrize("name", MODELS)
def test_rows_survive_json(name):
    text = json.dumps(kernel_to_json(MODELS[name]))
    assert kernel_from_json(json.loads(text)) == MODELS[name]


def test_a_saved_row_with_an_aggregate_of_ones_own_must_be_given():
    for aggregate in (Aggregate("median", lambda *_: None), lstm(7)):
        data = kernel_to_json(Kernel(("h",), ("h",), aggregate))
        with pytest.raises(ValueError, match=f"'{aggregate.name}'.*Pass the kernel"):
            kernel_from_json(data)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"phi": "h"}, "phi is 'h'; it must be a tuple"),
        ({"psi": ("x",)}, r"psi is \('x',\)"),
        ({"psi": ("h", "y", "h0")}, "put 'y' first or last"),
        ({"phi": ("h", "h")}, "phi names a signal twice"),
        ({"phi": (), "psi": ()}, "both empty"),
        ({"aggregate": "mean"}, "aggregate is 'mean'; wrap it"),
        ({"phi": ("h0",), "shared_weights": True}, "need phi == psi"),
        ({"identity": 0.5, "shared_weights": True}, "needs learned hops"),
        ({"identity": 0.5, "input_layer": True}, "needs learned hops"),
        ({"identity": -1.0}, "identity is -1"),
        ({"learned_hops": False, "second_layer": True}, "no second layer"),
        ({"learned_hops": False, "alpha": Gate(learned=True)}, "no learned gate"),
        ({"reads_out": "all"}, "reads_out is 'all'"),
        ({"reads_out": "each"}, "needs hops of one width"),
        ({"reads_out": "weighted", "input_layer": True, "psi": ("y",)}, "no 'y'"),
        ({"votes": "mean"}, "votes is 'mean'; give an Aggregate"),
        ({"votes": pooled_max}, "give an Aggregate that is linear"),
        ({"reads_out": "weighted", "input_layer": True, "votes": mean}, "no 'y'"),
        ({"concat": True, "shared_weights": True}, "need phi == psi and a sum"),
        ({"aggregate": pooled_max, "shared_weights": True}, "max cannot share"),
        ({"skip_from": -1}, "skip_from is -1"),
        ({"skip_from": 1, "concat": True}, "cannot skip"),
        ({"skip_from": 1, "phi": ()}, "no h_0 to skip from"),
        ({"learned_hops": False, "concat": True}, "keep one width"),
        ({"learned_hops": False, "psi": ("y",)}, "keep one width"),
        ({"learned_hops": False, "psi": ("h", "h0")}, "keep one width"),
        ({"learned_hops": False, "aggregate": pooled_max}, "keep one width"),
    ],
)
def test_impossible_rows_fail_when_written(keywords, message):
    good = {"phi": ("h",), "psi": ("h",), "aggregate": symmetric}
    Kernel(**good)
    with pytest.raises(ValueError, match=message):
        Kernel(**good | keywords)


def test_a_sum_is_a_sum():
    assert total.name == "sum"
