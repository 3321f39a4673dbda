"""What the README says runs, runs."""

import pathlib
import re

from tests import graphs

README = pathlib.Path(__file__).parents[2] / "README.md"


def python_blocks(page):
    """The examples of a page of Markdown."""
    text = page.read_text()
    found = re.findall(r"^( *)```python\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found
    ]


@graphs.needs("cora")
def test_the_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    first, *rest = python_blocks(README)
    exec(compile(first, "README.md", "exec"), space)
    assert space["result"].scores["test"]["micro_f1"] > 0.75
    assert "2708 nodes" in capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} == {"cora.png", "cora.npz"}
    for code in rest:
        exec(compile(code, "README.md", "exec"), space)
    assert space["result"].scores["test"]["micro_f1"] > 0.7


def test_the_first_example_is_ten_lines():
    lines = [line for line in python_blocks(README)[0].splitlines() if line.strip()]
    assert len(lines) <= 10


def test_the_commands_exist():
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z][a-z-]*)", README.read_text(), re.M):
        assert re.search(f"^{target}:", makefile, re.MULTILINE), target
