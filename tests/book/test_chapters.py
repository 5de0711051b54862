"""Check every chapter for the rules of CONTRIBUTING.md that a program can check."""

import ast
import re
from functools import cache

import jupytext
import pytest

from coursebook import course_map
from paths import CHAPTER_PAGES, CHAPTERS, LABS, PAGES_OF, ROOT

PAGE_TEXTS = {name: (ROOT / "book" / f"{name}.md").read_text("utf-8") for name in CHAPTER_PAGES}
CHAPTER_TEXTS = {name: "\n".join(PAGE_TEXTS[page] for page in pages) for name, pages in PAGES_OF.items()}
CHAPTER_MAP, LAB_MAP = course_map.read_chapters(), course_map.read_labs()
FIRST_PAGE = (ROOT / "book" / "index.md").read_text("utf-8")
LAB_TEXTS = {name: (ROOT / "solutions" / f"{name}.md").read_text("utf-8") for name in LABS}


COLUMN = 84  # characters of a line of code on a laptop


@cache
def cells_of(page):
    return jupytext.reads(PAGE_TEXTS[page], fmt="md:myst").cells


class Notebook:
    """The cells of some pages, their text, and their code cells with the properties `tags` and `visible`."""

    def __init__(self, *pages):
        self.cells = [cell for page in pages for cell in cells_of(page)]
        self.text = "\n\n".join(cell.source for cell in self.cells if cell.cell_type == "markdown")
        self.code = [cell for cell in self.cells if cell.cell_type == "code"]
        for cell in self.code:
            cell.tags = cell.metadata.get("tags", [])
            cell.visible = not {"hide-input", "hide-cell", "remove-input"} & set(cell.tags)


@pytest.fixture(scope="module", params=CHAPTERS)
def chapter(request):
    return Notebook(*PAGES_OF[request.param])


@pytest.fixture(scope="module", params=CHAPTER_PAGES)
def page(request):
    return Notebook(request.param)


def objectives_of(text):
    return re.findall(r"^- \*\*([A-Z]{2,3}-\d)\*\* [A-Z]", text, re.M)


def without_code_and_math(text):
    """Return the prose, without code, formulas, roles with their content, options of tables, and targets of links."""
    text = re.sub(r"^\$\$.*?\$\$|^```.*?^```|^\s*:\w+:.*?$|C(?:4\.5|5\.0)", "", text, flags=re.S | re.M)  # names
    return re.sub(r"\{[\w:]+\}`[^`]*`+|`[^`]*`|\$[^$]*\$|\]\([^)]*\)", "", text)


def test_there_are_chapters():
    assert CHAPTERS and LABS


@pytest.mark.parametrize(("name", "pages"), PAGES_OF.items())
def test_a_chapter_opens_with_a_picture_and_its_pages(name, pages):
    opening = Notebook(pages[0])
    assert "{{ pages }}" in opening.text and any(draws(cell) for cell in opening.code)
    assert not any("Reading time" in PAGE_TEXTS[page] for page in pages), "each page has its own"


@pytest.mark.parametrize("name", CHAPTER_PAGES)
def test_a_page_is_one_sitting_and_says_what_it_needs(name):
    if name.endswith("/index"):
        return
    text = Notebook(name).text
    minutes, rest = re.search(r"^# .+\n\n\*About (\d+) minutes\.\* (.*?)\n\n", text, re.M | re.S).groups()
    last = name.endswith("/to-take-away")
    assert last or (5 < int(minutes) <= 45 and ("](#" in rest or "nothing" in rest)), rest
    assert len(without_code_and_math(text).split()) <= 5000


@pytest.mark.parametrize("name", CHAPTERS)
def test_what_a_page_repeats_from_earlier_pages_is_the_same_code(name):
    seen = set()
    for page in PAGES_OF[name]:
        code = Notebook(page).code
        for cell in code:
            if "earlier" in cell.tags:
                assert "hide-input" in cell.tags
                for statement in ast.parse(cell.source).body:
                    given = isinstance(statement, ast.Import | ast.ImportFrom) or "datasets." in ast.unparse(statement)
                    assert given or ast.dump(statement) in seen, ast.unparse(statement)
        seen |= {ast.dump(statement) for cell in code for statement in ast.parse(cell.source).body}


def test_a_chapter_opens_with_three_to_six_objectives_and_what_they_need(chapter):
    card = re.search(r"^# .+?\n+:::\{admonition\} What you will be able to do\n(.*?)^:::$", chapter.text, re.M | re.S)
    assert card, "the card with the objectives must follow the title"
    objectives = objectives_of(card[1])
    prefix = objectives[0].split("-")[0]
    assert 3 <= len(objectives) <= 6 and objectives == [f"{prefix}-{i}" for i in range(1, len(objectives) + 1)]
    needed, _, labs = card[1].partition("**Before you start:**")[2].partition("**Lab")
    assert "](#sec-" in needed, "link to what a reader needs first"
    assert "](#lab-" in labs, "link to the lab"


def test_an_objective_is_a_verb_that_can_be_tested(chapter):
    verbs = re.findall(r"^- \*\*[A-Z]{2,3}-\d\*\* (\w+)", chapter.text, re.M)
    assert not {"Understand", "Know", "Learn", "Appreciate", "Be", "Have", "See"} & set(verbs), verbs


@pytest.mark.parametrize(("name", "text"), CHAPTER_TEXTS.items())
def test_every_objective_names_the_sections_that_teach_it_and_has_an_exercise_in_the_page_or_a_graded_one(name, text):
    labels = set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))
    graded = {one for lab in LAB_MAP for exercise in lab.exercises for one in exercise.objectives}
    chapter = next((one for one in CHAPTER_MAP if one.label in labels), None)
    assert chapter, f"{name} is not among the numbered chapters of _toc.yml"
    assert [one.name for one in chapter.objectives] == objectives_of(text)
    for objective in chapter.objectives:
        assert objective.sections and set(objective.sections) <= labels, f"{objective.name}: say where it is taught"
        assert objective.exercises or objective.name in graded, f"{objective.name}: no exercise serves it"


def test_every_graded_cell_serves_an_objective_that_exists():
    known = {objective.name for chapter in CHAPTER_MAP for objective in chapter.objectives}
    for lab in LAB_MAP:
        for exercise in lab.exercises:
            assert exercise.objectives, f"lab {lab.number}, {exercise.title}: no objective for {list(exercise.cells)}"
            assert set(exercise.objectives) <= known, f"lab {lab.number}, {exercise.title}: unknown objective"


def test_every_lab_belongs_to_a_chapter():
    assert sorted(label for chapter in CHAPTER_MAP for label in chapter.labs) == [name[:6] for name in LABS]


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_parts_that_close_a_chapter_are_there_in_order(name):
    parts = ["Where people go wrong", "Exercises", "To take away", "Further reading"]
    headings = re.findall(r"^## (.+)$", Notebook(PAGES_OF[name][-1]).text, re.M)
    assert [heading for heading in headings if heading in parts] == parts


def test_the_exercises_of_a_page_stand_at_its_end(page):
    headings = re.findall(r"^## (.+)$", page.text, re.M)
    if "{exercise-start}" in page.text:
        assert headings[-1] == "Exercises" and "{exercise-start}" not in page.text.split("\n## Exercises\n")[0]


def test_what_to_take_away_is_three_to_five_points_each_linked_to_its_section(chapter):
    part = chapter.text.split("## To take away")[1].split("\n## ")[0]
    points = re.split(r"^- ", part, flags=re.M)[1:]
    assert 3 <= len(points) <= 5 and all("](#sec-" in point for point in points)


def test_further_reading_is_cited_from_the_bibliography(chapter):
    assert re.search(r"\{cite:[pt]\}`", chapter.text.split("\n## Further reading")[1])


def test_a_cell_that_readers_see_is_short_and_its_lines_fit_the_column(page):
    for cell in page.code:
        lines = [line for line in cell.source.splitlines() if line.strip()]
        assert max(map(len, lines)) <= (COLUMN if cell.visible else 100), cell.source
        assert not cell.visible or len(lines) <= 12, cell.source


def test_a_figure_is_shown_and_no_object_beside_it(page):
    for cell in filter(draws, page.code):
        assert cell.source.endswith("\nplt.show()") or sliders_of(cell), cell.source
    assert not any(cell.source.endswith(";") for cell in page.code), "not every way to run a notebook honours `;`"


def test_the_first_page_has_a_card_with_a_picture_and_its_hours_for_every_chapter_in_order():
    cards = re.findall(r"^:link: (\S+)\n.*?^:::$", FIRST_PAGE.partition("chapter-cards")[2], re.M | re.S)
    hours = re.findall(r"\{\{ hours of (\S+) \}\}", FIRST_PAGE)
    labels = [chapter.label for chapter in CHAPTER_MAP]
    assert cards[: len(labels)] == labels and hours == [*labels, "all"]
    pictures = re.findall(r"^```\{glue:figure\} \w+\n:alt: (.+)\n```$", FIRST_PAGE, re.M)
    assert len(pictures) >= len(labels) and all(len(alt) > 60 for alt in pictures)


def test_the_page_of_every_lab_shows_a_picture_of_its_own_and_no_code():
    captions = set()
    for name in LABS:
        cells = jupytext.reads((ROOT / "book" / "labs" / f"{name}.md").read_text("utf-8"), fmt="md:myst").cells
        (cell,) = (cell for cell in cells if cell.cell_type == "code")
        options = cell.metadata["mystnb"]
        assert cell.metadata["tags"] == ["remove-input"] and cell.source.endswith("\nplt.show()")
        assert options["figure"]["name"] == f"fig-{name[:6]}" and len(options["image"]["alt"]) > 60
        assert not NOT_FROM_THE_COURSE.search(cell.source)
        captions.add(options["figure"]["caption"])
    assert len(captions) == len(LABS)


NOT_FROM_THE_COURSE = re.compile(
    r"\bread_(?!chapters|labs)\w+\(|(?<![\w.])(?<!def )open\(|\bPath\(|urlopen|fetch_\w+\(|https?://"
)


@pytest.mark.parametrize("text", [*CHAPTER_TEXTS.values(), *LAB_TEXTS.values()], ids=[*CHAPTERS, *LABS])
def test_data_come_from_the_course_not_from_a_path_or_a_network(text):
    for cell in jupytext.reads(text, fmt="md:myst").cells:
        if cell.cell_type == "code":
            assert not NOT_FROM_THE_COURSE.search(cell.source), cell.source


def test_nothing_is_imported_twice_or_installed(page):
    imports = [
        (getattr(node, "module", None), name.name)
        for cell in page.code
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    ]
    assert len(imports) == len(set(imports)), sorted(one for one in imports if imports.count(one) > 1)
    assert not any("pip install" in cell.source for cell in page.code)


def test_random_numbers_come_from_a_generator_with_a_seed(page):
    for cell in page.code:
        assert not re.search(r"np\.random\.(?!default_rng\()|default_rng\(\)", cell.source), cell.source


def draws(cell):
    return re.search(r"plt\.subplot|plotting\.plot_|explore\.figure", cell.source)


def sliders_of(cell):
    """Return the options of the call to explore.figure at the end of the cell, if there is one."""
    last = ast.parse(cell.source).body[-1]
    if isinstance(last, ast.Expr) and ast.unparse(last).startswith("explore.figure("):
        return {option.arg: option.value for option in last.value.keywords}
    return None


def test_every_figure_has_a_caption_a_label_and_a_text_for_those_who_cannot_see_it(chapter):
    assert any(draws(cell) for cell in chapter.code)
    for cell in filter(draws, chapter.code):
        options = cell.metadata.get("mystnb", {})
        figure, sliders = options.get("figure", {}), sliders_of(cell)
        alt = sliders["alt"].value if sliders else options.get("image", {}).get("alt", "")
        assert figure.get("caption") and figure.get("name", "").startswith("fig-"), cell.source
        assert len(alt) > 60 and alt != figure["caption"], f"{figure['name']}: the alt text must say what it shows"
        assert not re.match(r"(an?|the) (figure|image|picture|plot|chart|graph)\b", alt, re.I), alt


def test_figures_take_their_colours_from_the_palette_or_are_grey(page):
    for cell in page.code:
        named = re.findall(r"(?<!\w)(?:(?:face|edge)?colors?|c)=\"([^\"]+)\"", cell.source)
        others = {name for name in named if not re.fullmatch(r"C\d|0?\.\d+|black|white|none|k|w", name)}
        assert not others, f"{others}: colours that colour-blind readers can tell apart are C0, C1, ..."


def test_every_figure_has_labelled_axes_and_is_mentioned_in_the_text(chapter):
    for cell in filter(draws, chapter.code):
        name = cell.metadata["mystnb"]["figure"]["name"]
        assert re.search(r"xlabel|plotting\.plot_|axis\(\"off\"\)", cell.source), f"{name}: label the axes"
        assert f"{{numref}}`{name}`" in chapter.text, f"{name}: no sentence reads it"


def test_every_chapter_has_figures_with_sliders_that_ask_something_and_have_the_answer(chapter):
    with_sliders = [i for i, cell in enumerate(chapter.cells) if cell.cell_type == "code" and sliders_of(cell)]
    assert len(with_sliders) >= 3
    for i in with_sliders:
        before, after = chapter.cells[i - 1].source, chapter.cells[i + 1].source
        assert "?" in before.split("\n\n")[-1] + before.split("\n\n")[0], "ask what the sliders can show"
        assert after.startswith(":::{admonition} Answer\n:class: dropdown"), after


def test_no_decimal_number_in_the_text_was_typed(page):
    typed = re.findall(r"^.*\d\.\d.*$", without_code_and_math(page.text), re.M)
    assert not typed, "glue numbers from the cell that computes them: " + "\n".join(typed)


def test_no_line_of_the_text_is_taken_for_a_comment(page):
    """In MyST, a line that begins with a per cent sign is a comment, and is missing on the page."""
    assert not re.findall(r"^[ \t]*%.*$", page.text, re.M)


def test_what_is_glued_is_used_and_stands_with_an_assertion(page):
    for name in [name for cell in page.code for name in re.findall(r"glue\(f?\"([\w]+)\"", cell.source)]:
        assert re.search(rf"glue:(text)?\}}`{name}", page.text), f"{name} is glued, but no sentence uses it"
    for cell in page.code:
        if "glue(" in cell.source:
            assert "claim" in cell.tags and "assert " in cell.source, cell.source


def checks_many_draws(cell):
    """Whether a cell runs its claims for many seeds (see `mlcourse.claims`)."""
    return re.search(r"^@(general|reason)\(", cell.source, re.M)


def test_claims_are_asserted_and_folded_away(chapter):
    claims = [cell for cell in chapter.code if "claim" in cell.tags]
    assert len(claims) >= 5
    for cell in claims:
        assert "hide-cell" in cell.tags and ("assert " in cell.source or checks_many_draws(cell)), cell.source
    for cell in chapter.code:
        kinds = set(re.findall(r"^@(general|reason)\(", cell.source, re.M))
        assert kinds == {"general", "reason"} & set(cell.tags), "name the kind of each claim in the tags of its cell"
        assert not kinds or "claim" in cell.tags, cell.source
    assert not any("assert " in cell.source for cell in chapter.code if cell.visible), "claims belong into claim cells"


def test_every_pitfall_is_shown_by_a_short_experiment(chapter):
    cells = [(cell.cell_type, cell.source) for cell in chapter.cells]
    pitfalls = [i for i, (_, source) in enumerate(cells) if ":class: pitfall" in source]
    assert len(pitfalls) >= 3
    for i in pitfalls:
        assert cells[i][1].count(":class: pitfall") == 1 and cells[i + 1][0] == "code", cells[i][1]
        assert len(cells[i + 1][1].splitlines()) <= 8, cells[i + 1][1]


def test_every_exercise_names_its_objectives_and_has_a_folded_solution(chapter):
    known = set(objectives_of(chapter.text))
    exercises = re.findall(r"\{exercise-start\}.*?:label: (\S+)\n:::\n(.*?):::\{exercise-end\}", chapter.text, re.S)
    assert len(exercises) >= 4
    for label, text in exercises:
        named = re.findall(r"[A-Z]{2,3}-\d", re.match(r"\*Objectives? ([^*]*)\*", text)[1])
        assert named and set(named) <= known, label
        assert re.search(rf"\{{solution(-start)?\}} {label}\n:class: dropdown", chapter.text), f"{label}: no solution"


def quizzes_in(cells):
    """Yield the syntax tree of the call of ``quiz.choice`` or ``quiz.number`` at the end of each quiz cell."""
    for cell in cells:
        if "quiz" in cell.metadata.get("tags", []):
            yield ast.parse(cell.source).body[-1].value


def arguments_of(call):
    """Return the name of the quiz, and the expressions that decide which answers are right."""
    name, _, *rest = call.args
    if call.func.attr == "choice":
        return name.value, [option.elts[1] for option in rest]
    answer, _, *mistakes = rest
    return name.value, [answer, *(mistake.elts[0] for mistake in mistakes)]


QUIZZES = {
    chapter: [arguments_of(call)[0] for call in quizzes_in(jupytext.reads(text, fmt="md:myst").cells)]
    for chapter, text in CHAPTER_TEXTS.items()
}


def test_a_chapter_asks_at_least_five_questions(chapter):
    assert len(list(quizzes_in(chapter.code))) >= 5


@pytest.mark.parametrize("name", [page for page in CHAPTER_PAGES if not page.endswith(("/index", "/to-take-away"))])
def test_every_page_asks_a_question(name):
    assert list(quizzes_in(Notebook(name).code))


def test_the_keys_of_the_questions_are_computed(chapter):
    for call in quizzes_in(chapter.code):
        name, keys = arguments_of(call)
        for key in keys:
            names = [node.id for node in ast.walk(key) if isinstance(node, ast.Name) and node.id not in ("np", "bool")]
            computed = names or (call.func.attr == "number" and key is not call.args[2])
            assert computed, f"{name}: {ast.unparse(key)} was typed"


def test_a_question_shows_no_code_and_no_decimal_number_that_was_typed(chapter):
    for cell in chapter.code:
        if "quiz" in cell.tags:
            assert cell.tags == ["quiz", "remove-input"], cell.source
            (call,) = quizzes_in([cell])
            texts = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant)]
            typed = [text for text in texts if isinstance(text, str) and re.search(r"\d\.\d", text)]
            assert not typed, f"{arguments_of(call)[0]}: compute the number in {typed}"


def test_every_question_has_a_name_of_its_own():
    names = [name for names in QUIZZES.values() for name in names]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


@pytest.mark.parametrize("name", CHAPTERS[2:])
def test_from_the_third_on_a_chapter_opens_with_three_questions_of_chapters_before_it(name):
    opening = PAGE_TEXTS[PAGES_OF[name][0]]
    recalled = re.search(r"^```\{recall\} (.+)\n```$", opening, re.M)
    assert recalled, "recall questions"
    earlier = {quiz for chapter in CHAPTERS[: CHAPTERS.index(name)] for quiz in QUIZZES[chapter]}
    assert len(set(recalled[1].split())) >= 3 and set(recalled[1].split()) <= earlier


GLOSSARY = (ROOT / "book" / "glossary.md").read_text("utf-8")
LETTERS = dict(
    re.findall(r"^\(glossary-.\)=\n```\{rubric\} (.)\n```\n\n```\{glossary\}\n(.*?)^```$", GLOSSARY, re.M | re.S)
)
TERMS = re.findall(r"^(\S.*)$", "".join(LETTERS.values()), re.M)


def prose_of(text):
    """Return the text in one line, without code, headings, formulas, labels, targets of links, and objectives."""
    cells = jupytext.reads(text, fmt="md:myst").cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    text = re.sub(
        r"^:::\{admonition\} What you.*?^:::$|^```\{recall\}.*?^```$|^\$\$.*?\$\$$|^#.*?$", "", text, flags=re.S | re.M
    )
    return " ".join(re.sub(r"^\([\w-]+\)=$|\]\(#[^)]*\)|^\s*:\w+:.*$", "", text, flags=re.M).split())


BOOK = " ".join(map(prose_of, CHAPTER_TEXTS.values()))


@pytest.mark.parametrize("term", TERMS)
def test_a_term_leads_to_its_definition_where_the_book_first_uses_it(term):
    name = re.escape(term)
    explained = re.search(rf"\{{term\}}`(?:[^`]*<{name}>|{name})`|\*{name}\w{{0,2}}\*", BOOK, re.I)
    assert explained, f"no chapter links to the glossary's {term}"
    before = re.sub(r"\{term\}`[^`]*`", "", BOOK[: explained.start()])
    used = re.search(rf"(?<![\w-]){name}s?(?![\w-])", before, re.I)
    assert not used, f"the book uses {term} before it links to the glossary: … {before[: used.end()][-99:]}"


def test_the_glossary_is_in_alphabetical_order():
    assert sorted(TERMS, key=str.casefold) == TERMS


def test_every_term_stands_below_its_letter_to_which_the_glossary_links():
    assert len(TERMS) > 200
    assert re.findall(r"\[(.)\]\(#glossary-(.)\)", GLOSSARY) == [(letter, letter.lower()) for letter in LETTERS]
    for letter, entries in LETTERS.items():
        assert {term[0].upper() for term in re.findall(r"^(\S)", entries, re.M)} == {letter}
