"""Locks of datasets."""

import pytest

from hopf_jax.datasets import DatasetError
from hopf_jax.datasets.locks import locked


def test_a_lock_keeps_others_out_and_is_released(tmp_path, capsys):
    path = tmp_path / "folder" / "lock"
    with (
        locked(path),
        pytest.raises(DatasetError, match=r"held .*lock for 1 s"),
        locked(path, timeout=1.2),
    ):
        pass
    assert "Waiting for another process" in capsys.readouterr().err
    with locked(path, timeout=0):
        pass
