"""The rooms of the package have an order: a module imports only from its own room and from rooms before it. No modules of the tree
import each other in a circle. Imports within functions count too. No class, function or list of parameters of the product is
too long."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import intact
import pytest

PACKAGE = Path(intact.__file__).parent
TREE = Path(__file__).parents[2]
# Modules of the package's own folder have a place too. "": intact/__init__.py.
ORDER = [
    "_interface",
    "_library",
    "_deadline",
    "_plans",
    "_graph",
    "_formats",
    "_engines",
    "_audit",
    "_compare",
    "_repair",
    "onnxruntime",
    "torch",
    "_operators",
    "_program",
    "_target",
    "verify",
    "",
]
FOLDERS = [
    "python/tests",
    "integrations/onnxruntime/tests",
    "integrations/onnxruntime/scripts",
    "integrations/pytorch/tests",
    "integrations/pytorch_legacy/tests",
    "bench",
    "tools",
]  # of programs that import each other by name


PRODUCT = [
    "integrations",
    "bench",
    "tools",
    "peers",
]  # folders of programs, besides the package; without their tests
MOST = {"lines of a class": 300, "lines of a function": 80, "parameters": 10}


def name_of(path, folder):
    parts = path.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source, module, is_package, modules, by_name=False):
    """The modules of a folder that a module imports: relatively, or by their names in a folder of programs."""
    package = module.split(".") if module else []
    package = package if is_package else package[:-1]
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            if not node.level and not by_name:
                continue
            base = package[: len(package) - node.level + 1] if node.level else []
            base += node.module.split(".") if node.module else []
            # `from . import name`: a module, or a name of the package itself
            found |= {
                ".".join([*base, one.name]) if ".".join([*base, one.name]) in modules else ".".join(base)
                for one in node.names
            }
        elif isinstance(node, ast.Import) and by_name:
            found |= {one.name for one in node.names}
    return (found & modules) - {module}


def graph_of(folder, by_name=False):
    paths = {name_of(path, folder): path for path in folder.rglob("*.py")}
    return {
        name: imports(path.read_text(), name, path.name == "__init__.py", set(paths), by_name)
        for name, path in paths.items()
    }


def circles(graph):
    """The groups of modules that reach each other, as "a -> b -> a"."""
    found, reached = [], {}
    for start in graph:
        stack, ways = [start], {}
        while stack:
            at = stack.pop()
            for other in sorted(graph.get(at, ())):
                if other not in ways:
                    ways[other] = at
                    stack.append(other)
        reached[start] = ways
    for module, ways in reached.items():
        if module in ways and not any(module in circle.split(" -> ") for circle in found):
            circle, at = [module], ways[module]
            while at != module:
                circle.append(at)
                at = ways[at]
            found.append(" -> ".join([module, *reversed(circle[1:]), module]))
    return found


def upward(graph):
    """The imports of a later room, in words."""

    def room(module):
        return module.split(".")[0]

    found = [f"{module} has no room that has a place" for module in graph if room(module) not in ORDER]
    return found + [
        f"{module} imports {other}, which stands after it"
        for module, others in graph.items()
        for other in sorted(others)
        if {room(module), room(other)} <= {*ORDER} and ORDER.index(room(other)) > ORDER.index(room(module))
    ]


def too_long(source):
    """The classes, functions and lists of parameters above `MOST`, in words. `self` and `cls` do not count."""
    found = []

    def visit(node, within):
        for child in ast.iter_child_nodes(node):
            name, sizes = within, {}
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{within}.{child.name}".lstrip(".")
                lines = child.end_lineno - child.lineno + 1
                sizes = {"lines of a class": lines}
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                of = child.args
                parameters = [*of.posonlyargs, *of.args, *of.kwonlyargs, *filter(None, [of.vararg, of.kwarg])]
                count = sum(one.arg not in ("self", "cls") for one in parameters)
                sizes = {"lines of a function": lines, "parameters": count}
            found.extend(f"{name}: {size} {what}" for what, size in sizes.items() if size > MOST[what])
            visit(child, name)

    visit(ast.parse(source), "")
    return found


def test_no_class_and_no_function_is_too_long():
    paths = [*PACKAGE.rglob("*.py")]
    for folder in PRODUCT:
        paths += [path for path in (TREE / folder).rglob("*.py") if "tests" not in path.parts]
    found = [f"{path}: {words}" for path in paths for words in too_long(path.read_text())]
    print(f"too long, of {len(paths)} files: {len(found)}", *found, sep="\n")
    assert found == []


def test_a_module_imports_only_rooms_before_it():
    graph = graph_of(PACKAGE)
    assert upward(graph) == []
    sizes = Counter(module.split(".")[0] for module in graph)
    assert not set(ORDER) - set(sizes) and all(sizes[room] > 2 for room in ORDER if sizes[room] > 1)
    assert "_graph.scope" in graph["_formats.onnx"] and "_audit.audit" in graph[""]  # the imports were seen


def test_no_circles_in_the_package():
    found = circles(graph_of(PACKAGE))
    print(f"circles between modules of intact: {len(found)}", *found, sep="\n")
    assert found == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_circles_in_the_tree(folder):
    if not (TREE / folder).is_dir():
        pytest.skip("the tree's other folders are not here")
    assert circles(graph_of(TREE / folder, by_name=True)) == []


def test_faults_are_found():
    modules = {"_graph.axes", "_graph.nodes", "_graph", "_repair.plan", "_library"}
    source = "from .nodes import a\ndef f():\n    from .._repair import plan\n    from ._x import b\nfrom .._library import c\n"
    assert imports(source, "_graph.axes", False, modules) == {"_graph.nodes", "_repair.plan", "_library"}
    assert imports("from . import axes", "_graph", True, modules) == {"_graph.axes"}
    assert imports("import torch\nfrom torch import nn", "torch._graph", False, {"torch"}) == set()
    assert imports("import a\nfrom b import c", "d", False, {"a", "b"}, by_name=True) == {"a", "b"}
    assert upward({"_graph.axes": {"_repair.plan"}}) == [
        "_graph.axes imports _repair.plan, which stands after it"
    ]
    assert upward({"_new.one": set()}) == ["_new.one has no room that has a place"]
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b -> c -> b"]
    assert circles({"a": {"b"}, "b": set()}) == []
    long = "class A:\n  def f(self, a, *b, c, **d):\n" + "    pass\n" * 80
    assert too_long(long) == ["A.f: 81 lines of a function"] and too_long(long + "    pass\n" * 219) == [
        "A: 301 lines of a class",
        "A.f: 300 lines of a function",
    ]
    assert too_long(f"def f({', '.join(f'a{i}' for i in range(11))}): pass") == ["f: 11 parameters"]
