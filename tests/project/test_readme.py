"""The examples and links of the README work, and it stays short."""

import re

import hopf_jax
from tests.project.pages import README, ROOT, python_blocks, run_examples, train_briefly


def test_the_example_runs(tmp_path, monkeypatch):
    train_briefly(monkeypatch, max_epochs=60)
    (output,) = run_examples(README, tmp_path, monkeypatch)
    ((kind, text),) = output
    assert kind == "text"
    labels = re.search(r"\[.*\]", text)[0]
    assert labels.count("students") + labels.count("gang") >= 2, labels
    for expected in ("precision", "recall", "Javert"):
        assert expected in text
    assert list(tmp_path.iterdir()) == []


def test_the_first_example_has_ten_lines_and_needs_no_download():
    (code,) = python_blocks(README)
    lines = [x for x in code.splitlines() if x.strip() and not x.startswith("import")]
    assert len(lines) <= 10
    assert "load_dataset" not in code


def test_it_is_short():
    assert len(README.read_text().splitlines()) <= 110


def test_it_counts_the_kernels():
    assert f"[{len(hopf_jax.MODELS)} kernels]" in README.read_text()


def test_the_two_commands_are_there():
    text = README.read_text()
    assert re.search(r"^make reproduce DATASET=pubmed\b", text, re.M)
    assert re.search(r"^make test\b", text, re.M)


def test_links_lead_to_files_and_headings():
    text = README.read_text()
    links = re.findall(r"\]\((?!http)([^)#]+)(?:#([^)]+))?\)", text)
    links += [(path, "") for path in re.findall(r'<img src="([^"]+)"', text)]
    assert len(links) > 20
    for path, heading in links:
        assert (ROOT / path).exists(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in headings]
            assert heading in [slug.lower() for slug in slugs], (path, heading)


def test_the_picture_is_small():
    (path,) = re.findall(r'<img src="([^"]+)"', README.read_text())
    assert (ROOT / path).stat().st_size < 200_000


def test_figures_are_those_of_the_documentation():
    """Seconds, scores and ratios of the README occur on the pages it links to."""
    text = README.read_text()
    pages = " ".join(
        (ROOT / "docs" / page).read_text() for page in ("performance.md", "results.md")
    )
    table = text[text.index("## Comparison") : text.index("## Documentation")]
    found = re.findall(r"\d+\.\d+", table)
    assert len(found) >= 6
    for figure in found:
        assert figure in pages, figure
