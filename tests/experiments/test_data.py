"""The table that `make data` prints."""

import pytest

from experiments import data
from hopf_jax.datasets import locations


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("HOPF_DATA", raising=False)
    monkeypatch.setenv("HOPF_CACHE", str(tmp_path))
    monkeypatch.setattr(locations, "CHECKOUT", tmp_path / "project" / "checkout")


def test_a_synthetic_row(capsys):
    assert data.main(["chain"]) == 0
    output = capsys.readouterr()
    assert "Loading chain" in output.err
    header, _, row = output.out.splitlines()[:3]
    assert header.split()[:3] == ["dataset", "task", "nodes"]
    assert row.split()[:5] == ["chain", "multi-class", "6", "10", "5"]


def test_what_is_not_on_hand_is_said_and_no_error(capsys):
    assert data.main([]) == 0
    assert "Not on hand: cora" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["reddit", "nonsense"])
def test_what_cannot_be_had_is_an_error(capsys, name):
    assert data.main([name]) == 1
    assert name in capsys.readouterr().err
