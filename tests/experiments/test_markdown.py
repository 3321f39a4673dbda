"""Markdown of reports: any text in names is shown, and none of it is executed."""

import html.parser

import numpy as np
import pytest

from experiments.common import markdown

PARTS = (
    *("|", "\\", "`", "**", "*", "_", "# ", "- ", "\n", "<b>", "</td>", "&amp;", "]("),
    *(
        "<script>x</script>",
        "![a](javascript:x)",
        "[a](javascript:x)",
        "\x00",
        "é",
        "a",
    ),
    *("---", "1. ", "> ", "    ", "\t", "\r", "~~~", "```", "<!--", "<http://a.b>"),
)


class Tags(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen, self.rows = set(), []

    def handle_starttag(self, tag, attributes):
        self.seen.add(tag)
        assert {name for name, _ in attributes} <= {"style", "start", "class"}
        if tag == "tr":
            self.rows.append(0)
        elif tag in ("td", "th"):
            self.rows[-1] += 1


def tags_of(lines):
    parser = Tags()
    parser.feed(markdown.to_html(lines))
    return parser


@pytest.mark.parametrize("seed", range(20))
def test_any_text_survives(seed):
    rng = np.random.default_rng(seed)
    for _ in range(250):
        text = "".join(rng.choice(PARTS, rng.integers(1, 12)))
        table = markdown.markdown_table(["a", text], [[text, "1"], ["x", text]])
        found = tags_of([f"# {text}", "", text, "", table, "", f"- **{text}**: x"])
        assert not found.seen & {"script", "img", "a", "b"}, text
        assert tags_of([table]).rows == [2, 2, 2], text


def test_what_reports_use():
    table = markdown.markdown_table(["model", "F1"], [["gcn", "**80.1**"]])
    made = markdown.to_html(["# Title", "", "Some `code`.", "", table, "", "- one"])
    for part in ("<h1>Title</h1>", "<code>code</code>", "<li>one</li>"):
        assert part in made
    assert '<td style="text-align:right"><strong>80.1</strong></td>' in made
