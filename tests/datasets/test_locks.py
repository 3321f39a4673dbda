"""Locks, and what killed writers leave behind."""

import os

import pytest

from hopf_jax.datasets import DatasetError
from hopf_jax.datasets.locks import locked, write_locked


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


def test_what_a_killed_writer_left_is_deleted(tmp_path, monkeypatch):
    path = tmp_path / "folder" / "a[1].npz"

    for _ in range(2):
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

            def stop(file, patch=patch):
                file.write(b"half of it")
                patch.setattr(os, "unlink", lambda _: None)  # As if killed.
                raise KeyboardInterrupt

            write_locked(path, stop)
        assert not path.exists()
        assert len(list(path.parent.iterdir())) == 1
    other = path.with_name(".other.npz.0123456789abcdef")  # Its writer may be at work.
    other.touch()
    write_locked(path, b"all of it")
    assert path.read_bytes() == b"all of it"
    assert sorted(path.parent.iterdir()) == [other, path]
