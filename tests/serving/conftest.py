import dataclasses

import pytest

from hopf_jax import Config, fit
from hopf_jax.serving import Live, make_app
from tests import graphs

SHORT = Config(num_hops=1, hidden_size=4, num_iterations=2, max_epochs=3, min_epochs=1)
NAMES = ("Ann", "Bob", "ann-marie", "<b>&", "ü", (1, 2), 7.5, True)


def named(graph):
    names = (*NAMES, *(f"node {i}" for i in range(len(NAMES), graph.num_nodes)))
    columns = tuple(f"column {i}" for i in range(graph.num_features))
    return dataclasses.replace(graph, node_names=names, feature_names=columns)


@pytest.fixture(scope="session")
def result():
    return fit(named(graphs.tiny()), "i-nip-mean", config=SHORT)


@pytest.fixture(scope="session")
def several():
    """A result with several labels per node."""
    return fit(graphs.tiny(multilabel=True), "i-nip-mean", config=SHORT)


@pytest.fixture
def live(result):
    return Live(result, result.graph)


@pytest.fixture
def app(live):
    made = make_app(live, hosts=["localhost"])
    yield made
    made.worker.close()
