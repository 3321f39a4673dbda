"""Fits that the tests of results share."""

import pytest

from hopf_jax import Config, fit
from tests import graphs

SHORT = Config(
    hidden_size=5, batch_size=3, num_iterations=3, max_epochs=4, min_epochs=2
)


@pytest.fixture(scope="session")
def config():
    return SHORT


@pytest.fixture(scope="session")
def result():
    return fit(graphs.tiny("weighted"), "i-nip-mean", SHORT)


@pytest.fixture(scope="session")
def multilabel_result():
    """Of a graph with several labels per node, with settings that JSON changes."""
    config = Config(hidden_size=5, num_iterations=2, max_epochs=2, fanouts=(3, 2))
    return fit(graphs.tiny("weighted", multilabel=True), "i-nip-mean", config)
