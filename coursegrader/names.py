"""The global names in the code of a cell: those that it defines, changes and needs."""

import ast
import builtins
import functools
import re
import symtable
import warnings
from dataclasses import dataclass, field

MAX_CHARACTERS = 10_000  # of a cell that is read
# A chain of attributes: Python keeps every part of the name `a.b.c` of a module: `a`, `a.b` and `a.b.c`
LONG_CHAIN = re.compile(r"(?:\.[\s\\]*+\w++[\s\\]*+){100}")
LINE_ENDS = r"\r\v\f\x1c-\x1e\x85\u2028\u2029"  # that IPython knows, beside the line feed
# What a cell has that is no Python and may yet run, in IPython: signs, prompts, an indented first line, other line ends
MAY_BE_IPYTHON = re.compile(rf"[!%?{LINE_ENDS}]|In \[|^[^\S\n]*(?:[,;/]|>>>|\.\.\.)|\A\s*?^[^\S\n]", re.MULTILINE)
OTHER_LINE_END = re.compile(f"[{LINE_ENDS}]")
# Magics that bind and read no name, and after which the other lines run as they are. IPython evaluates what stands in
# braces or after a dollar sign, and the value of `%config`, so they have words or one text alone.
HARMLESS_MAGIC = re.compile(
    r"(\A\s*)%%(?:time|capture)[ \t]*$|^([ \t]*)%(?:matplotlib[ \t]+\w+"
    r"""|config[ \t]+[\w.]+[ \t]*=[ \t]*(?:'\w*'|"\w*"))[ \t]*$""",
    re.MULTILINE,
)
WORD = re.compile(r"[^\W\d]\w*")
# Names that turn text into names, such as `df.query`
EVALUATING = {"eval", "exec", "query", "globals", "locals", "vars", "getattr", "get_ipython", "__main__", "__dict__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MAX_NESTED = 5  # functions in one another; a person writes three
MAX_DEPTH = 100  # of the syntax tree; a lab has 16


@dataclass
class Names:
    """The global names in the code of a cell.

    Attributes
    ----------
    defines : set of str
        Names that the cell always binds.
    may_define : set of str
        Names that it binds in a branch or a loop.
    modules : set of str
        Names that it binds by an import.
    changes : set of str
        Names of objects that it may change in place, as in ``x[0] = 1``, ``del x.a`` or ``x.sort()``.
    needs : set of str
        Names that it reads as it runs, and has not bound before.
    needs_later : set of str
        Names that its functions read when they are called, and that it does not bind itself. If a cell evaluates text,
        as in ``df.query("a > @limit")``, all its words count.
    """

    defines: set[str] = field(default_factory=set)
    may_define: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)
    needs_later: set[str] = field(default_factory=set)


@functools.lru_cache(300)
def names_of(source: str) -> Names | None:
    """Return the names in the code of a cell; empty for a syntax error, since the code does not run.

    Return None if the names are not known, since reading the code would take much time or memory.
    """
    names = Names()
    try:
        tree = _tree(source)
        if tree is None or _is_too_nested(tree):
            return None
        _read_block(tree.body, names, set(), certain=True)
    except (SyntaxError, ValueError):
        return Names()
    except Exception:  # such as a RecursionError; IPython raises others
        return None
    names.needs_later -= names.defines | names.may_define
    names.needs_later |= _mentioned(tree)
    return names


def parsed(source: str) -> ast.Module | None:
    """Return the syntax tree of code; None if it is longer or deeper than what a person writes.

    Raises
    ------
    SyntaxError, ValueError
        If it is not Python.
    """
    if len(source) > MAX_CHARACTERS or LONG_CHAIN.search(source):
        return None
    try:
        with warnings.catch_warnings():  # a SyntaxWarning would not say whose code it is about
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (RecursionError, MemoryError):
        return None


def _tree(source):
    """Return the syntax tree of a cell; None for IPython's syntax, except for a few magics.

    We do not ask IPython to translate the cell: a student could make that take minutes.
    """
    try:
        return parsed(source)
    except SyntaxError:
        if not MAY_BE_IPYTHON.search(source):
            raise
    if OTHER_LINE_END.search(source):
        return None
    try:
        return parsed(HARMLESS_MAGIC.sub(lambda magic: f"{magic[1] or magic[2] or ''}pass", source))
    except SyntaxError:
        return None


def _is_too_nested(tree):
    """Whether code is so deep that to read its names takes long."""
    waiting = [(tree, 0, 0)]
    while waiting:
        node, depth, functions = waiting.pop()
        functions += isinstance(node, FUNCTIONS)
        if depth > MAX_DEPTH or functions > MAX_NESTED:
            return True
        waiting += [(one, depth + 1, functions) for one in ast.iter_child_nodes(node)]
    return False


@functools.lru_cache(1000)
def names_of_test(source: str) -> list[str]:
    """Return the names that a test cell takes from the notebook: all that it uses but does not define."""
    used, own, waiting = set(), set(), [symtable.symtable(source, "<test>", "exec")]
    while waiting:
        table = waiting.pop()
        waiting += table.get_children()
        for symbol in table.get_symbols():
            if table.get_type() == "module" and (symbol.is_assigned() or symbol.is_imported()):
                own.add(symbol.get_name())
            elif symbol.is_global() or table.get_type() == "module":
                used.add(symbol.get_name())
    return sorted(used - own - set(dir(builtins)))


def imports_of_test(source: str) -> list[tuple[str, list[str]]]:
    """Return the imports of a test cell before its hidden part: each with the names that it binds."""
    shown = source.partition("### BEGIN HIDDEN TESTS")[0].count("\n") + 1
    found = [node for node in ast.parse(source).body if node.lineno <= shown and _imported(node)]
    return [(ast.unparse(node), _imported(node)) for node in found]


def _read_block(body, names, bound, certain):
    """Read statements in order; `bound` has the names that the cell has already bound."""
    for node in body:
        if isinstance(node, (ast.With, ast.AsyncWith)):
            _read(node.items, names, bound)
            _bind(node.items, names, bound, certain)
            _read_block(node.body, names, bound, certain)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            _read([node.iter], names, bound)
            inside = set(bound)
            _bind([node.target], names, inside, certain=False)
            _read_block(node.body, names, inside, certain=False)
            _read_block(node.orelse, names, set(bound), certain=False)
        elif isinstance(node, (ast.If, ast.While)):
            _read([node.test], names, bound)
            branches = [set(bound), set(bound)]
            for branch, block in zip(branches, (node.body, node.orelse), strict=True):
                _read_block(block, names, branch, certain=False)
            if isinstance(node, ast.If):
                bound |= branches[0] & branches[1]
        elif isinstance(node, (ast.Try, ast.TryStar)):
            blocks = [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
            _read([handler.type for handler in node.handlers if handler.type], names, bound)
            for block in blocks:
                _read_block(block, names, set(bound), certain=False)
            for handler in node.handlers:
                names.may_define.update([handler.name] if handler.name else [])
        else:
            _read([node], names, bound)
            _bind([node], names, bound, certain=certain and not isinstance(node, ast.Match))


def _read(nodes, names, bound):
    """Note the names that are read, now or in a later call, and those that may be changed in place."""
    for node in nodes:
        for name, later in _loads(node, later=False):
            if later:
                names.needs_later.add(name)
            elif name not in bound:
                names.needs.add(name)
        names.changes.update(_changed(node))


def _bind(nodes, names, bound, certain):
    for node in nodes:
        found = set(_bound(node))
        names.modules.update(_imported(node))
        bound |= found
        (names.defines if certain else names.may_define).update(found)


def _loads(node, later):
    """Yield the global names that code reads, and whether it reads them only in a later call."""
    if isinstance(node, FUNCTIONS):
        own = set(_bound_inside(node))
        outside = [*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)]
        for one in outside:
            yield from _loads(one, later)
        body = node.body if isinstance(node.body, list) else [node.body]
        for one in body:
            yield from ((name, True) for name, _ in _loads(one, True) if name not in own)
    elif isinstance(node, ast.Name):
        if isinstance(node.ctx, (ast.Load, ast.Del)):
            yield node.id, later
    else:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, later
        own = set()
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            own = {name for part in node.generators for name in _bound(part.target)}
        for one in ast.iter_child_nodes(node):
            yield from (found for found in _loads(one, later) if found[0] not in own)


def _mentioned(tree):
    """Return all words of code that evaluates text: each may be a name."""
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(WORD.findall(node.value))
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            words.update(alias.name for alias in node.names)
            words.add(getattr(node, "module", None))
    return words if words & EVALUATING else set()


def _bound_inside(function):
    """Yield the names that are local to a function."""
    arguments = function.args
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if one is not None:
            yield one.arg
    if isinstance(function.body, list):
        outer = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        yield from (name for one in function.body for name in _bound(one) if name not in outer)


def _bound(node):
    """Yield the names that code binds in its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        yield from (name for one in ast.walk(node) if isinstance(one, ast.Global) for name in one.names)
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
        return
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    if isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    yield from _imported(node)
    comprehension = isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp))
    for one in ast.iter_child_nodes(node):
        if not (comprehension and isinstance(one, ast.comprehension)):
            yield from _bound(one)
        else:
            yield from (name for part in (one.iter, *one.ifs) for name in _bound(part))


def _imported(node):
    """Return the names that an import statement binds."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    return []


def _changed(tree):
    """Yield the names of objects that code may change in place, as in ``x[0] = 1``, ``del x.a`` or ``x.sort()``."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            yield from _root(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield from _root(node.value.func)


def _root(node):
    """Yield the first name of an expression such as ``x.a[0].b``, unless it is only a name."""
    if isinstance(node, ast.Name):
        return
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id
