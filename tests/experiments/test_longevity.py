"""experiments.longevity: a process that fits graph after graph stays small."""

import pytest

from experiments import longevity
from experiments.common import output


def test_it_measures_every_fit(tmp_path, capsys):
    longevity.main(["--fits", "2", "--sizes", "2", "--workdir", str(tmp_path)])
    found = output.read_json(tmp_path / "longevity" / "longevity.json")
    assert [each["fit"] for each in found["curve"]] == [1, 2]
    assert all(each["rss_mb"] > 50 and each["maps"] > 50 for each in found["curve"])
    assert "After the first quarter: rss_mb" in capsys.readouterr().out


@pytest.mark.parametrize(("last", "growth"), [(100, 0.0), (150, 0.5), (90, -0.1)])
def test_growth_is_that_after_the_first_quarter(last, growth):
    curve = [{"maps": n} for n in (20, 100, 100, 100, 100, 100, last, last)]
    assert longevity.grown(curve, "maps") == pytest.approx(growth)


@pytest.mark.slow
def test_200_fits_of_50_sizes_stay_flat(tmp_path):
    assert longevity.main(["--workdir", str(tmp_path)]) == 0
