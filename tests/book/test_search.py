"""The index of the search: what it has of a page."""

import pytest
from bs4 import BeautifulSoup

from coursebook.site.search import Section, Term, readable, sections_of

PAGE = """<nav>menu</nav><article><section id="trees"><h1>Trees<a class="headerlink">#</a></h1>
<p>A tree asks.<span>It</span> answers.</p>
<div class="cell"><div class="cell_input"><pre>tree.fit(X, y)</pre></div>
<div class="cell_output"><pre>0.5</pre></div></div>
<div class="cell tag_claim"><div class="cell_input"><pre>assert True</pre></div></div>
<section id="leaves"><h2>Leaves</h2><p>Where it <em>ends</em>.</p>
<div><section id="inner"><p>Solved.</p></section></div></section>
</section>
<dl class="glossary"><dt id="term-leaf">leaf</dt>
<dd><p>An end. Also called tip, end node or terminal node. Related: twig.</p></dd></dl></article>"""


def test_a_section_has_what_readers_see_and_where_it_starts():
    first, second, term = sections_of("trees.html", PAGE)
    assert first == Section("trees.html", "", "Trees", "A tree asks.It answers.", "tree.fit(X, y)")
    assert second == Section("trees.html", "leaves", "Leaves", "Where it ends. Solved.", "")
    definition = "An end. Also called tip, end node or terminal node. Related: twig."
    assert term == Term("trees.html", "term-leaf", "leaf", definition, ["tip", "end node", "terminal node"], ["twig"])


@pytest.mark.parametrize(
    ("mathml", "text"),
    [
        ("<mi>x</mi><mo>=</mo><mn>2</mn>", "x = 2"),
        ("<mfrac><mi>a</mi><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></mfrac>", "a/(n + 1)"),
        ("<msup><mi>x</mi><mn>2</mn></msup>", "x²"),
        ("<msup><mi>X</mi><mi>⊤</mi></msup>", "Xᵀ"),
        ("<msub><mi>x</mi><mi>i</mi></msub>", "x_i"),
        ("<msubsup><mi>σ</mi><mi>i</mi><mn>2</mn></msubsup>", "σ_i^2"),
        ("<mover><mi>y</mi><mo>^</mo></mover>", "y\u0302"),
        ("<munder><mi>x</mi><mo>⏟</mo></munder>", "x"),
        ("<msqrt><mi>a</mi><mi>b</mi></msqrt>", "√ab"),
        ('<mi>x</mi><annotation encoding="application/x-tex">\\mathrm{x}</annotation>', "x"),
    ],
)
def test_a_formula_becomes_a_line_of_text(mathml, text):
    assert readable(BeautifulSoup(f"<math>{mathml}</math>", "html.parser").math) == text
