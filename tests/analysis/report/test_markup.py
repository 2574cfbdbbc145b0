"""HTML that cannot be broken by what is put into it."""

from fairlead.analysis.report.markup import Html, clean, join, table, tag


def test_text_is_escaped_and_html_is_not() -> None:
    assert tag("p", "a<b", tag("b", "&"), None, False, 3) == "<p>a&lt;b<b>&amp;</b>3</p>"
    assert join("<", Html("<br>")) == "&lt;<br>"
    assert clean("\x00\ud800\t'\"") == "\N{REPLACEMENT CHARACTER}?\t&#x27;&quot;"


def test_attributes() -> None:
    assert tag("td", class_="n", data_v='"', hidden=True, title=None) == (
        '<td class="n" data-v="&quot;" hidden></td>'
    )
    assert tag("link", rel="icon") == '<link rel="icon">'


def test_a_table_without_headings_has_no_head() -> None:
    row = tag("tr", tag("td", 1))
    assert table((), [row]) == "<table><tbody><tr><td>1</td></tr></tbody></table>"
    assert table([tag("th", "x")], [row], class_="n") == (
        '<table class="n"><thead><tr><th>x</th></tr></thead><tbody><tr><td>1</td></tr></tbody></table>'
    )
