"""`compare`, explanations and the estimator: accepted, or a ValueError."""

import pytest
from hypothesis import strategies as st

from hopf_jax import HOPFClassifier, compare, comparison, sklearn_api
from tests.fuzzing import Refused, anything, attempt, fuzz, scalars
from tests.robustness.test_results import TINY, fitted


class Accepted(Exception):  # noqa: N818
    """Everything was checked, and fitting begins."""


def attempt_to_fit(module, call, *arguments, **keywords):
    def begin(*_, **__):
        raise Accepted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "fit", begin)
        try:
            return attempt(call, *arguments, **keywords)
        except Accepted:
            return None


COMPARE = (
    *("graph", "models", "folds", "config", "seed", "share"),
    *("on", "metric", "level", "resamples"),
)


@fuzz(40, 300, name=st.sampled_from(COMPARE), value=anything)
def test_anything_as_an_argument_of_compare(name, value):
    arguments = {"graph": fitted().graph, "models": ["gcn"], "folds": 2}
    if name == "folds" and isinstance(value, int) and value > 1000:
        return  # As many as were asked for.
    arguments |= {"config": TINY, "progress": False, name: value}
    found = attempt_to_fit(comparison, compare, **arguments)
    assert found is None or isinstance(found, Refused)


@fuzz(20, 200, node=anything, label=st.one_of(st.none(), scalars))
def test_anything_as_a_node_to_explain(node, label):
    found = attempt(fitted().explain, node, label=label)
    if not isinstance(found, Refused):
        assert abs(sum(found.shares.values()) - 1) < 1e-4 or found.constant


@fuzz(20, 150, nodes=anything)
def test_anything_as_nodes_for_confidence(nodes):
    found = attempt(fitted().confidence, nodes)
    if not isinstance(found, Refused):
        assert ((found.values >= 0) & (found.values <= 1)).all()


ESTIMATOR = (
    *("graph", "model", "num_hops", "hidden_size", "num_iterations", "learning_rate"),
    *("l2", "dropout", "max_epochs", "config", "validation_fraction"),
)


@fuzz(40, 300, name=st.sampled_from(ESTIMATOR), value=scalars)
def test_anything_as_a_setting_of_the_estimator(name, value):
    if name == "graph" and value is None:
        return  # Then X are features.
    estimator = HOPFClassifier(**{"graph": fitted().graph} | {name: value})
    ids, labels = list(range(12)), ["a", "b"] * 6
    found = attempt_to_fit(sklearn_api, estimator.fit, ids, labels)
    assert found is None or isinstance(found, Refused)
