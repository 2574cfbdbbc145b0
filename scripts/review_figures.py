"""Print the figures by which the structure of the code is judged, and what is over a limit.

``python scripts/review_figures.py [--root src/fairlead] [--list] [--json] [--check]``: one line per figure
with its limit; ``--list`` adds the offenders; ``--check`` exits with 1 if a figure is over its limit.

Counted from the syntax trees alone, so nothing is imported:

- calls with seven or more positional arguments (a starred argument counts as one);
- class names that two or more definitions share;
- functions of more than 60 lines, decorators and docstring included;
- attributes of a class: what its body annotates (except ``ClassVar``) or its ``__slots__`` name, and what
  its methods assign to ``self``; members of an enumeration are not attributes;
- files of more than 500 lines;
- import circles (strongly connected sets of modules): by imports that run when a module is loaded, also
  by imports inside functions, also by those for type checkers; and circles between sibling packages.
"""

import argparse
import ast
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

POSITIONAL = 7  # a call with so many positional arguments is one too many
FUNCTION_LINES = 60
FILE_LINES = 500
LISTED_CLASSES = 25
NO_ENTRIES = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}


class When(Enum):
    """When an import takes place."""

    LOADED = "when the module is loaded"
    CALLED = "inside a function"
    CHECKED = "for type checkers only"


@dataclass(frozen=True)
class Module:
    """A source file, parsed."""

    name: str  # dotted, from the package on
    path: Path
    lines: int
    tree: ast.Module
    is_package: bool


@dataclass(frozen=True)
class Import:
    """One module imports another of the same package."""

    importer: str
    imported: str
    when: When
    line: int


@dataclass
class Figure:
    """A number of the review, its limit, and what counts towards it."""

    name: str
    value: int
    limit: int | None
    offenders: list[str] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the limit does not hold."""
        return self.limit is not None and self.value > self.limit


def read_modules(root: Path) -> list[Module]:
    """All modules below the package directory ``root``, by path."""
    found = []
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        parts = list(path.relative_to(root.parent).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(source, filename=str(path))
        found.append(Module(name, path, source.count("\n"), tree, is_package))
    return found


def long_calls(modules: Iterable[Module]) -> Figure:
    """Calls with many positional arguments."""
    offenders = [
        f"{module.path}:{node.lineno}: {ast.unparse(node.func)}, {len(node.args)}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and len(node.args) >= POSITIONAL
    ]
    return Figure(
        f"calls with {POSITIONAL} or more positional arguments", len(offenders), 10, offenders
    )


def repeated_classes(modules: Iterable[Module]) -> Figure:
    """Class names with several definitions."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    offenders = [
        f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1
    ]
    return Figure("class names used twice or more", len(offenders), 5, offenders)


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions and methods of a module, nested ones included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def span(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first decorator to the last statement."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return (node.end_lineno or node.lineno) - first + 1


def long_functions(modules: Iterable[Module]) -> Figure:
    """Functions that do not fit a page."""
    found = [
        (span(node), f"{module.path}:{node.lineno}: {node.name}, {span(node)} lines")
        for module in modules
        for node in functions(module)
        if span(node) > FUNCTION_LINES
    ]
    offenders = [text for _, text in sorted(found, key=lambda one: -one[0])]
    return Figure(f"functions over {FUNCTION_LINES} lines", len(offenders), 8, offenders)


def attributes(node: ast.ClassDef) -> set[str]:
    """Names of the data of a class's instances; none of an enumeration."""
    if any(ast.unparse(base).split(".")[-1] in ENUMS for base in node.bases):
        return set()
    names: set[str] = set()
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            if "ClassVar" not in ast.unparse(item.annotation):
                names.add(item.target.id)
        elif isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "__slots__":
            names |= {
                one.value
                for one in ast.walk(item.value)
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            }
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            names |= _assigned_to_self(item)
    return names


def _assigned_to_self(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    if not method.args.args:
        return set()
    me = method.args.args[0].arg
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == me
        and me == "self"
    }


def is_record(node: ast.ClassDef) -> bool:
    """Whether its instances are data alone: a dataclass, a named tuple or a struct."""
    marks = [*node.decorator_list, *node.bases]
    return any(
        word in ast.unparse(mark)
        for mark in marks
        for word in ("dataclass", "NamedTuple", "Struct")
    )


def has_methods(node: ast.ClassDef) -> bool:
    """Whether a class has methods besides special ones, properties and other ways to make an instance."""
    apart = ("property", "staticmethod", "classmethod")
    return any(
        isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
        and not item.name.startswith("__")
        and not any(word in ast.unparse(mark) for mark in item.decorator_list for word in apart)
        for item in node.body
    )


def is_frozen(node: ast.ClassDef) -> bool:
    """Whether the instances of a record never change."""
    marks = [*node.decorator_list, *node.bases, *(one.value for one in node.keywords)]
    frozen = any("frozen=True" in ast.unparse(mark) for mark in marks)
    named = any(one.arg == "frozen" and ast.unparse(one.value) == "True" for one in node.keywords)
    return frozen or named or any("NamedTuple" in ast.unparse(base) for base in node.bases)


def large_acting_records(modules: Iterable[Module]) -> Figure:
    """Records that change and have methods, by number of attributes: classes, but for their decorator."""
    found = sorted(
        (-len(attributes(node)), f"{module.path}:{node.lineno}: {node.name}")
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        and is_record(node)
        and not is_frozen(node)
        and has_methods(node)
    )
    offenders = [f"{where}, {-count}" for count, where in found[:LISTED_CLASSES]]
    name = "attributes of the largest record that changes and has methods"
    return Figure(name, -found[0][0] if found else 0, None, offenders)


def large_classes(modules: Iterable[Module], records: bool) -> Figure:
    """Classes by number of attributes, the largest first; either records or all other classes."""
    found = sorted(
        (
            (-len(attributes(node)), f"{module.path}:{node.lineno}: {node.name}")
            for module in modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.ClassDef) and is_record(node) is records
        ),
    )
    name = (
        "attributes of the largest record"
        if records
        else "attributes of the largest class with behaviour"
    )
    offenders = [f"{where}, {-count}" for count, where in found[:LISTED_CLASSES]]
    return Figure(name, -found[0][0] if found else 0, None if records else 15, offenders)


def long_files(modules: Iterable[Module]) -> Figure:
    """Files that hold too much."""
    found = sorted(
        (-module.lines, str(module.path)) for module in modules if module.lines > FILE_LINES
    )
    offenders = [f"{path}, {-lines} lines" for lines, path in found]
    return Figure(f"files over {FILE_LINES} lines", len(offenders), 0, offenders)


def imports_of(module: Module, names: set[str]) -> list[Import]:
    """Imports of other modules of the package. names: of all its modules."""
    found: list[Import] = []

    def visit(node: ast.AST, when: When) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for statement in child.body:
                    note(statement, When.CHECKED)
                    visit(statement, When.CHECKED)
                for statement in child.orelse:
                    note(statement, when)
                    visit(statement, when)
                continue
            note(child, when)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            visit(child, When.CALLED if inside and when is When.LOADED else when)

    def note(node: ast.AST, when: When) -> None:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            whole = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in names else base for name in whole]
        else:
            return
        found.extend(
            Import(module.name, target, when, node.lineno)
            for target in targets
            if target in names and target != module.name
        )

    visit(module.tree, When.LOADED)
    return found


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    """The dotted name that a ``from`` import, relative or not, starts from."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
    return ".".join([*parts, *([node.module] if node.module else [])])


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components of two nodes or more (Tarjan's algorithm), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(edges) + 1000))
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def module_circles(
    imports: Iterable[Import], kinds: set[When], name: str, limit: int | None
) -> Figure:
    """Circles of modules by imports of these kinds."""
    edges: dict[str, set[str]] = defaultdict(set)
    for one in imports:
        if one.when in kinds:
            edges[one.importer].add(one.imported)
    found = circles(edges)
    return Figure(name, len(found), limit, [", ".join(members) for members in found])


def package_circles(imports: Iterable[Import], root: str) -> Figure:
    """Circles between siblings: the parts of each package, by imports that run when modules are loaded.

    The modules of a package's own folder count as one part each, its subpackages as one part each.
    """
    by_parent: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in imports:
        if one.when is not When.LOADED:
            continue
        a, b = one.importer.split("."), one.imported.split(".")
        depth = next(
            (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
        )
        if depth < 1 or depth >= len(a) or depth >= len(b):
            continue  # a package and a part of its own
        parent = ".".join(a[:depth])
        by_parent[parent][".".join(a[: depth + 1])].add(".".join(b[: depth + 1]))
    found = [(parent, members) for parent, edges in by_parent.items() for members in circles(edges)]
    offenders = [
        f"in {parent}: {', '.join(m.removeprefix(f'{root}.') for m in members)}"
        for parent, members in found
    ]
    return Figure(
        "import circles between packages (siblings)", len(offenders), 0, sorted(offenders)
    )


def spans(modules: Iterable[Module]) -> tuple[int, int]:
    """Median and 90th percentile of the lines of functions."""
    lengths = sorted(span(node) for module in modules for node in functions(module))
    return int(statistics.median(lengths)), lengths[int(0.9 * len(lengths))]


def figures(root: Path) -> list[Figure]:
    """All figures of the package directory ``root``."""
    modules = read_modules(root)
    names = {module.name for module in modules}
    imports = [one for module in modules for one in imports_of(module, names)]
    median, ninth = spans(modules)
    entries = sorted(
        {path.name for path in root.iterdir()}
        - {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    )
    return [
        Figure("files", len(modules), None),
        Figure("lines of source", sum(module.lines for module in modules), 52_000),
        Figure("median lines of a function", median, None),
        Figure("90th percentile of lines of a function", ninth, None),
        Figure("entries of the package", len(entries), 11, entries),
        long_calls(modules),
        repeated_classes(modules),
        long_functions(modules),
        large_classes(modules, records=False),
        large_classes(modules, records=True),
        large_acting_records(modules),
        long_files(modules),
        module_circles(imports, {When.LOADED}, "import circles between modules", 0),
        module_circles(
            imports, {When.LOADED, When.CALLED}, "the same with imports inside functions", None
        ),
        module_circles(imports, set(When), "the same with imports for type checkers", None),
        package_circles(imports, root.name),
    ]


def main() -> int:
    """Print the figures; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[1] / "src" / "fairlead"
    )
    parser.add_argument("--list", action="store_true", help="name what counts towards each figure")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--check", action="store_true", help="end with 1 where a figure is over its limit"
    )
    given = parser.parse_args()
    if not (given.root / "__init__.py").is_file():
        parser.error(f"--root: {given.root} is not a package")
    found = figures(given.root)
    if given.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    else:
        for one in found:
            limit = (
                ""
                if one.limit is None
                else f"  (at most {one.limit:,}{', OVER' if one.is_over else ''})"
            )
            print(f"{one.value:>7,}  {one.name}{limit}")
            if given.list:
                print("".join(f"         {text}\n" for text in one.offenders), end="")
    return 1 if given.check and any(one.is_over for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
