"""A setting out of range fails by its name."""

import dataclasses
import inspect
import re

import numpy as np
import pytest

from hopf_jax import Config, Execution, fit
from hopf_jax.config import (
    _ALSO_CALLED,
    _OF_FIT,
    _OF_THE_GRAPH,
    config_from_json,
)

WHOLE = (-1, 1.5, "2", None, True)
BAD = {
    "num_hops": (*WHOLE, 17),
    "hidden_size": (*WHOLE, 0),
    "num_iterations": (*WHOLE, 0),
    "tolerance": (-0.1, float("nan"), float("inf"), "0", None, True),
    "average_labels": (1, None, "yes"),
    "warm_start": (0, None),
    "training_summaries": ("printed", None, 1),
    "hidden_share": (0, -0.5, 1.1, float("nan"), None),
    "summary_dropout": (-0.1, 1, 1.0, 2, float("nan"), "0"),
    "scale_summaries": (1, None),
    "parts": (*WHOLE, 0, 1, 1001),
    "members": (*WHOLE, 0, 1001),
    "folds": (-1, 1, 1.5, "2", True, 1001),
    "caution": ("all", None, True),
    "summary": ("label", None, 1),
    "metric": ("accuracy", None, 1),
    "scoring": ("top", None),
    "batch_size": (*WHOLE, 0),
    "batches_per_step": (*WHOLE, 0),
    "fanouts": ((5,), (5, 0), (5, -1), (5, 1.5), 25, "ab"),
    "directions": ("one", None, 1),
    "neighbor_fraction": (0, -0.5, 1.1, float("nan"), None),
    "ghost_edges": (*WHOLE, 1001),
    "learning_rate": (0, -1, float("nan"), float("inf"), "1e-2"),
    "l2": (-1e-9, float("nan"), None),
    "smoothing": (-1e-9, float("nan"), None),
    "dropout": (-0.1, 1, 1.0, 2, float("nan"), None),
    "weighted_loss": (1, None),
    "clip": (0, -5, float("inf"), None),
    "max_epochs": (*WHOLE, 0),
    "min_epochs": WHOLE,
    "patience": (*WHOLE, 0),
    "init_weights": ("normal", None),
    "bias": (1, None),
    "norm": ("none ", "group", None),
    "residual": (1, None),
    "precompute": (1, None),
    "noise": ("nodes", None),
    "precision": ("float16", None),
    "features": ("scaled", None, 1),
}
EXECUTION = {
    "memory_budget": WHOLE,
    "chunk_edges": (-1, 1.5, "2", True, 0),
    "shared_programs": (1, "yes"),
    "other_devices": (1, None),
}
GOOD = {
    "num_hops": (0, 16),
    "tolerance": (0, 0.5),
    "fanouts": (None, (25, 10), [25, 10]),
    "neighbor_fraction": (1e-9, 1),
    "ghost_edges": (0, 1000),
    "dropout": (0, 0.999),
    "summary_dropout": (None, 0, 0.999),
    "hidden_share": (1e-9, 1),
    "members": (1, 1000),
    "folds": (None, 0, 2, 1000),
    "l2": (0, 1),
    "min_epochs": (0, 10**9),
}


def test_every_field_is_tested_and_documented():
    for kind, tested in ((Config, {*BAD}), (Execution, {*EXECUTION, "devices"})):
        names = {field.name for field in dataclasses.fields(kind)}
        assert names == tested
        assert all(f"      {name}: " in kind.__doc__ for name in names)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(Config, name, value) for name in BAD for value in BAD[name]]
    + [(Execution, name, value) for name in EXECUTION for value in EXECUTION[name]],
)
def test_out_of_range(kind, name, value):
    with pytest.raises(ValueError, match=f"^{name} is .*; it must be"):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in GOOD for value in GOOD[name]]
)
def test_within_range(name, value):
    kept = getattr(Config(**{name: value}), name)
    assert kept == (tuple(value) if isinstance(value, list) else value)


def test_settings_of_version_0_1_are_read():
    saved = dataclasses.asdict(Config(l2=0.5)) | {"memory_budget": 5, "chunk_edges": 7}
    assert config_from_json(saved) == Config(l2=0.5)


def test_it_is_varied_not_changed():
    config = Config()
    assert hash(dataclasses.replace(config, num_hops=3)) != hash(config)
    assert Config(fanouts=[3, 2]) == Config(fanouts=(3, 2))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_hops = 3
    with pytest.raises(TypeError):
        dataclasses.replace(config, num_hop=3)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("hiden_size", "Did you mean 'hidden_size'?"),
        ("weight_decay", "It is called 'l2' here."),
        ("memory_budget", "execution=hopf_jax.Execution(memory_budget=...)"),
        ("labels", "Graph.from_networkx(graph, labels=...)"),
        ("qqq", "help(hopf_jax.Config) lists the settings."),
    ],
)
def test_an_unknown_setting_gets_a_hint(name, hint):
    with pytest.raises(TypeError, match=re.escape(f"no argument {name!r}. ")) as caught:
        Config(**{name: 1})
    assert hint in str(caught.value)
    with pytest.raises(TypeError, match=re.escape(hint)):
        dataclasses.replace(Config(), **{name: 1})


def test_other_names_of_settings_lead_to_settings():
    known = {field.name for field in dataclasses.fields(Config)}
    assert set(_ALSO_CALLED.values()) <= known
    assert not known & (set(_ALSO_CALLED) | set(_OF_FIT) | set(_OF_THE_GRAPH))
    assert set(_OF_FIT.values()) <= set(inspect.signature(fit).parameters)


def test_numbers_of_numpy_are_numbers():
    config = Config(num_hops=np.int64(3), dropout=np.float32(0.5), bias=np.True_)
    assert config == Config(num_hops=3, dropout=0.5, bias=True)
    assert type(config.num_hops) is int and config.bias is True
    with pytest.raises(ValueError, match="num_hops is -1"):
        Config(num_hops=np.int64(-1))


def test_the_signature_is_that_of_the_fields():
    names = [field.name for field in dataclasses.fields(Config)]
    assert list(inspect.signature(Config).parameters) == names
