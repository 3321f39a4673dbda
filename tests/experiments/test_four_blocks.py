"""experiments.four_blocks: defaults on a graph that a stranger might have."""

import numpy as np

from experiments import four_blocks
from experiments.common import output


def test_an_age_is_all_that_differs():
    plain, other = (four_blocks.make_blocks(1, age) for age in (False, True))
    assert plain.num_features == 8 and other.num_features == 9
    np.testing.assert_array_equal(plain.features, other.features[:, :8])
    np.testing.assert_array_equal(plain.train, other.train)
    np.testing.assert_array_equal(plain.indices, other.indices)
    assert (plain.train.sum(), plain.validation.sum()) == (100, 40)
    same = plain.labels[plain.indices].argmax(1) == np.repeat(
        plain.labels.argmax(1), np.diff(plain.indptr)
    )
    assert 0.6 < same.mean() < 0.8


def test_it_prints_both_scores(tmp_path, capsys):
    given = ["--models", "gcn", "--seeds", "1", "--workdir", str(tmp_path)]
    four_blocks.main(given)
    assert "gcn " in capsys.readouterr().out
    found = output.read_json(tmp_path / "four_blocks.json")["scores"]["gcn"]
    assert min(found["without"][0], found["with"][0]) > 70
