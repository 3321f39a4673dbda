"""The examples, commands and links of the README work."""

import pathlib
import re

import pytest

from tests import graphs

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"


def python_blocks(page):
    """The Python examples of a page of Markdown."""
    text = page.read_text()
    found = re.findall(r"^( *)```python\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found
    ]


@graphs.needs("cora")
def test_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    first, *rest = python_blocks(README)
    assert rest
    exec(compile(first, "README.md", "exec"), space)
    assert space["result"].scores["test"]["micro_f1"] > 0.75
    assert "2708 nodes" in capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} == {"cora.png", "cora.npz"}
    for code in rest:
        exec(compile(code, "README.md", "exec"), space)
    assert space["result"].scores["test"]["micro_f1"] > 0.7


def test_the_first_example_has_ten_lines():
    lines = [line for line in python_blocks(README)[0].splitlines() if line.strip()]
    assert len(lines) <= 10


@pytest.mark.parametrize(
    ("page", "least"),
    [("README.md", 5), ("CONTRIBUTING.md", 6), ("experiments/README.md", 8)],
)
def test_make_targets_exist(page, least):
    text, makefile = (ROOT / page).read_text(), (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"(?:`|^)make ([a-z][a-z-]*)", text, re.M))
    assert len(targets) >= least
    for target in targets:
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target


def test_links_lead_to_files_and_headings():
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#([^)]+))?\)", README.read_text())
    assert len(links) > 10
    for path, heading in links:
        assert (ROOT / path).is_file(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in headings]
            assert heading in [slug.lower() for slug in slugs], (path, heading)
