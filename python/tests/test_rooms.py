"""The rooms of the package have an order: a module imports only from its own room and from rooms before it. No modules of the tree
import each other in a circle. Imports within functions count too."""

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
