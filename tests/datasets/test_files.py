"""Atomic writes and locks."""

import pytest

from hopf_jax.datasets import files


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "folder" / "file"
    files.write_atomically(path, lambda stream: stream.write(b"old"))

    def fail(stream):
        stream.write(b"half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_a_lock_keeps_others_out_and_is_freed(tmp_path, capsys):
    path = tmp_path / "folder" / "lock"
    with (
        files.locked(path),
        pytest.raises(files.DatasetError, match=r"held .*lock for 1 s"),
        files.locked(path, timeout=1.2),
    ):
        pass
    assert "Waiting for another process" in capsys.readouterr().err
    with files.locked(path, timeout=0):
        pass
