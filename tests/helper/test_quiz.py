"""Questions in the pages: invalid questions, the order of answers, and the HTML."""

import re

import numpy as np
import pytest
from bs4 import BeautifulSoup

from mlcourse import quiz

YES, NO = ("yes", True, "since it is so"), ("no", False, "you mixed up two things")


def page(question):
    return BeautifulSoup(question._repr_html_(), "html.parser")


def ask(*options, name="a-name"):
    return quiz.choice(name, "Is it so?", *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([("yes", False, "a"), ("no", False, "b")], "exactly one .* not 0 of 2"),
        ([("yes", True, "a"), ("no", np.True_, "b")], "exactly one .* not 2 of 2 .*'yes', 'no'"),
        ([YES], "at least two options"),
        ([YES, ("no", 0, "b")], "'no' is right must be True or False, not 0"),
        ([YES, ("no", np.array([False, True]), "b")], "must be True or False"),
        ([YES, ("no", False, " ")], "'no' lacks"),
        ([YES, ("yes ", False, "b")], "two of its answers are the same: yes"),
    ],
)
def test_a_choice_with_a_wrong_key_or_without_an_explanation_is_refused_and_named(options, words):
    with pytest.raises(ValueError, match=f"quiz a-name: .*{words}"):
        ask(*options)


@pytest.mark.parametrize(
    ("answer", "mistakes", "words"),
    [
        (0.501, [(0.499, "why")], "two of its answers are the same: 0.50"),
        (1, [], "at least one mistake"),
        (np.nan, [(1, "why")], "finite"),
        (1, [(np.inf, "why")], "finite"),
        (1, [(2, "")], "lacks"),
    ],
)
def test_a_number_that_a_mistake_gives_too_is_refused_and_named(answer, mistakes, words):
    with pytest.raises(ValueError, match=f"quiz a-name: .*{words}"):
        quiz.number("a-name", "How many?", answer, "count", *mistakes)


@pytest.mark.parametrize("name", ["", "A-name", "a name", "a--b", 'a"b'])
def test_a_name_that_cannot_be_part_of_an_address_is_refused(name):
    with pytest.raises(ValueError, match="a name has small letters"):
        ask(YES, NO, name=name)


def test_the_order_of_the_call_does_not_show():
    options = [YES, NO, ("perhaps", False, "it is certain")]
    shown = [ask(*options[i:], *options[:i])._repr_html_() for i in range(3)]
    assert len(set(shown)) == 1


def test_the_right_option_has_no_habitual_place():
    places = [
        [one.is_right for one in ask(YES, NO, ("perhaps", False, "no"), name=f"quiz-{i}").answers].index(True)
        for i in range(90)
    ]
    assert min(np.bincount(places, minlength=3)) > 15


def test_numbers_are_shown_in_ascending_order():
    options = [("1,000 m", True, "a"), ("20.5 m", False, "b"), ("−3 m", False, "c"), ("$7$ m", False, "d")]
    assert [one.text for one in ask(*options).answers] == ["−3 m", "$7$ m", "20.5 m", "1,000 m"]


def test_a_choice_is_a_group_of_radio_buttons_with_an_explanation_for_each():
    html = page(ask(YES, NO))
    radios, explanations = html.fieldset.select("label > input[type=radio]"), html.select("details li")
    assert html.legend.get_text().endswith("Is it so?")
    assert {radio["name"] for radio in radios} == {"quiz-a-name"}
    assert [radio["value"] for radio in radios] == [one["data-key"] for one in explanations]
    texts = {one.select_one(".quiz-text").get_text(): one.select_one(".quiz-why").get_text() for one in explanations}
    assert texts == {"yes": "✓ Right. since it is so", "no": "✗ Not right. you mixed up two things"}
    assert html.button.parent.has_attr("hidden"), "without a script it would do nothing"


def test_what_a_device_remembers_is_another_thing_when_the_text_of_the_answer_changes():
    keys = [{one.key for one in ask((text, True, "a"), NO).answers} for text in ("5 m", "6 m")]
    assert len(keys[0] & keys[1]) == 1


def test_a_number_is_asked_with_its_unit_and_rounded():
    html = page(quiz.number("a-name", "How far?", 2 / 3, "divide", (-0.0001, "subtracted"), decimals=1, unit="m"))
    assert "to 1 decimal" in html.label.get_text() and html.label.get_text().rstrip().endswith("m")
    assert html.input["data-tolerance"] == "0.05"
    assert [one["data-value"] for one in html.select("li")] == ["0.7", "0.0"]


def test_texts_are_markdown_with_formulas_and_nothing_else_becomes_html():
    html = ask(("`a` *b* $x < \\frac12$ <script>", True, "because $a_b$"), NO)._repr_html_()
    assert "<code>a</code> <em>b</em>" in html and "&lt;script&gt;" in html
    assert re.search(r'<span class="math inline">\\\(x &lt; \\frac12\\\)</span>', html)
    assert r"\(a_b\)" in html, "an underscore in a formula is no emphasis"
