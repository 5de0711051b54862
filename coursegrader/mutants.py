"""Mechanical mutants of a solution: small changes, one at a time, that a test cell should notice.

Signatures, imports, docstrings and `raise` statements stay as they are.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator

ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
COMPARISONS = {
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
NAMES = {
    "mean": ["sum", "median"],
    "sum": ["mean"],
    "min": ["max"],
    "max": ["min"],
    "argmin": ["argmax"],
    "argmax": ["argmin"],
    "all": ["any"],
    "any": ["all"],
    "var": ["std"],
    "std": ["var"],
}
CONVERSIONS = {"np.array", "np.asarray", "pd.Series", "pd.DataFrame", "list"}
COPIES = {"copy", "reset_index", "to_numpy"}
SKIPPED = (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr, ast.arguments)


def mutants(code: str) -> Iterator[tuple[str, str]]:
    """Yield the mutants of a cell.

    Parameters
    ----------
    code : str
        The source of the cell.

    Yields
    ------
    description, mutated : str
        What was changed, in the form ``function: `before` -> `after```, and the source after the change.
    """
    tree = ast.parse(code)
    original, seen, names = ast.unparse(tree), Counter(), Counter()
    for where, ancestors, old in list(_nodes(tree)):
        for new in _variants(old, ancestors):
            context = _context(ancestors, old)
            before = ast.unparse(context)
            _Replace(old, new).visit(tree)
            mutated, after = ast.unparse(tree), ast.unparse(new if context is old else context)
            if isinstance(old, ast.FunctionDef):  # an argument is ignored
                before, after = ast.unparse(old.args), ast.unparse([one for one in new.body if one not in old.body])
            _Replace(new, old).visit(tree)
            seen[mutated] += 1
            if mutated == original or seen[mutated] > 1:
                continue
            change = f"{where}`{before}` -> `{after}`"
            names[change] += 1
            yield change if names[change] == 1 else f"{change} ({names[change]})", mutated


class _Replace(ast.NodeTransformer):
    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return self.new if node is self.old else self.generic_visit(node)


def _nodes(node, where="", ancestors=()):
    """Yield all nodes that may change, with the name of the function around them and the nodes above them."""
    yield where, ancestors, node
    inner = f"{node.name}: " if isinstance(node, ast.FunctionDef) else where
    for child in ast.iter_child_nodes(node):
        docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        if not docstring and not isinstance(child, SKIPPED):
            yield from _nodes(child, inner, (*ancestors, node))


def _context(ancestors, node):
    """Return the smallest expression or statement around `node` that shows what the change means."""
    for above in reversed(ancestors):
        bare = isinstance(node, (ast.Constant, ast.UnaryOp, ast.Name, ast.Tuple, ast.List))
        if not bare or hasattr(above, "body"):
            break
        node = above
    return node


def _variants(node, ancestors):
    """Yield the possible replacements of a node."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(op)](), right)
        case ast.AugAssign(target, op, value) if type(op) in ARITHMETIC:
            yield ast.AugAssign(target, ARITHMETIC[type(op)](), value)
        case ast.Compare(left, [op], right):
            yield from (ast.Compare(left, [other()], right) for other in COMPARISONS.get(type(op), []))
            if isinstance(op, ast.Eq) and not any(isinstance(one, ast.Constant) for one in (left, *right)):
                yield ast.Call(ast.parse("np.isclose", mode="eval").body, [left, *right], [])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.Invert(), operand):
            yield operand
        case ast.Constant(bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield from (ast.Constant(other) for other in (value + 1, value - 1, -value))
        case ast.Constant(str() as value) if value.isidentifier():
            yield from (ast.Constant(other) for other in _neighbours(value, ancestors))
        case ast.Name(name, ast.Load()) if "train" in name or "test" in name:
            pair = ("train", "test") if "train" in name else ("test", "train")
            yield ast.Name(name.replace(*pair), ast.Load())
        case ast.Attribute(ast.Name("self"), name, ast.Store()):  # shared by all instances
            yield ast.Attribute(ast.parse("type(self)", mode="eval").body, name, ast.Store())
        case ast.FunctionDef(args=ast.arguments(args=arguments, defaults=defaults)):
            first = ast.get_docstring(node) is not None
            for argument, default in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True):
                ignored = copy.copy(node)
                ignored.body = node.body[:first] + [_assigned(argument.arg, default)] + node.body[first:]
                yield ignored
        case ast.Attribute(value, name, context):
            yield from (ast.Attribute(value, other, context) for other in NAMES.get(name, []))
        case ast.Return(value) if value is not None:
            yield ast.Return(ast.Constant(None))
            if isinstance(value, ast.Tuple):
                yield ast.Return(ast.Tuple(value.elts[::-1], ast.Load()))
        case ast.Assign(targets, ast.Tuple(elements)):
            yield ast.Assign(targets, ast.Tuple(elements[::-1], ast.Load()), lineno=0)
        case ast.Dict(keys, values):
            for i in range(len(keys) - 1):
                yield ast.Dict(keys, [*values[:i], values[i + 1], values[i], *values[i + 2 :]])
        case ast.Expr() | ast.If(orelse=[]):
            yield ast.Pass()
        case ast.For(target, iterated, body, others):  # the order of an argument is lost
            if iterated_sorted := _sorted(iterated, ancestors):
                yield ast.For(target, iterated_sorted, body, others, lineno=0)
        case ast.comprehension(target, iterated, conditions):
            if iterated_sorted := _sorted(iterated, ancestors):
                yield ast.comprehension(target, iterated_sorted, conditions, 0)
        case ast.Call(function, positional, keywords):
            if ast.unparse(function) in CONVERSIONS and positional:  # a list, an index, the caller's own array
                yield positional[0]
            if isinstance(function, ast.Attribute) and function.attr in COPIES:
                yield function.value
            if len(positional) > 1:
                yield ast.Call(function, [positional[1], positional[0], *positional[2:]], keywords)
            for keyword in keywords:
                yield ast.Call(function, positional, [other for other in keywords if other is not keyword])
            if ast.unparse(function) == "range" and not isinstance(positional[-1], ast.BinOp):
                for change in (ast.Add(), ast.Sub()):
                    stop = ast.BinOp(positional[-1], change, ast.Constant(1))
                    yield ast.Call(function, [*positional[:-1], stop], keywords)


def _assigned(name, value):
    return ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)


def _sorted(iterated, ancestors):
    """Return the argument of a function that a loop goes through, sorted; None if it goes through anything else."""
    functions = [above for above in ancestors if isinstance(above, ast.FunctionDef)]
    names = {argument.arg for one in functions for argument in one.args.args}
    if isinstance(iterated, ast.Name) and iterated.id in names:
        return ast.Call(ast.Name("sorted", ast.Load()), [iterated], [])
    return None


def _neighbours(value, ancestors):
    """Return the names next to the string `value` in the same cell."""
    names = [
        node.value
        for node in ast.walk(ancestors[0])
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    ]
    pairs = list(zip(names, names[1:])) + list(zip(names[1:], names))
    return sorted({other for name, other in pairs if name == value} - {value})
