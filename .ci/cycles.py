#!/usr/bin/env python3
"""Finds import cycles between the Rust files of each crate; CONTRIBUTING.md states the rule.

A file depends on another file of its crate if it names an item of it: in `use`, or as a path that
begins with `crate`, `super` or `self`. A name is followed through `pub use` to the file that defines
it. A module that names its own children does not depend on them, because declaring and re-exporting
children is its purpose. Tests do not count.

Exits with 1 if a cycle exists that ALLOWED does not list, or if ALLOWED lists one that is gone.
"""

import re
import sys
from pathlib import Path

# Cycles that remain to be broken, by a file of each cycle.
ALLOWED = set()

PATH = re.compile(r"\b(crate|super|self)((?:::\w+)+)(?:::\{|(?=\W))")
USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)
ITEM = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:const\s+|unsafe\s+|async\s+)*"
    r"(?:fn|struct|enum|trait|type|static|union|const)\s+(\w+)",
    re.M,
)
MACRO = re.compile(r"macro_rules!\s+(\w+)")


def strip(text):
    """Removes comments, strings and the tests at the end of a file."""
    text = re.split(r"^#\[cfg\(test\)\]\nmod \w+ \{", text, maxsplit=1, flags=re.M)[0]
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def leaves(tree):
    """Yields the paths of a `use` tree as lists, with the name that each one binds."""
    tree = re.sub(r"\s+", " ", tree).strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, alias = tree.partition(" as ")
        parts = [part.strip() for part in path.split("::")]
        name = alias.strip() or (parts[-2] if parts[-1] == "self" and len(parts) > 1 else parts[-1])
        yield ([part for part in parts if part != "self"] or ["self"]) if parts[0] != "self" else (
            ["self"] + parts[1:]
        ), name
        return
    prefix, inner = tree[:brace], tree[brace + 1 : tree.rfind("}")]
    depth, start = 0, 0
    for i, char in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if inner[start:i].strip():
                part = inner[start:i].strip()
                joined = prefix[:-2] if part == "self" else prefix + part
                yield from leaves(joined)
            start = i + 1


class Crate:
    """The modules of a crate, by their paths."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        for file in sorted((root / "src").rglob("*.rs")):
            parts = list(file.relative_to(root / "src").with_suffix("").parts)
            if parts[-1] in ("mod", "lib", "main"):
                parts.pop()
            if "tests" not in parts:
                self.files[tuple(parts)] = file
        self.text = {module: strip(file.read_text()) for module, file in self.files.items()}
        self.uses = {module: self.bindings(module) for module in self.files}
        self.items = {
            module: set(ITEM.findall(text)) | set(MACRO.findall(text))
            for module, text in self.text.items()
        }

    def bindings(self, module):
        """Returns the names that a module binds by `use`, with their absolute paths."""
        bound, globs = {}, []
        for _, tree in USE.findall(self.text[module]):
            for path, name in leaves(tree):
                absolute = self.absolute(module, path)
                if absolute is not None:
                    globs.append(absolute[:-1]) if name == "*" else bound.setdefault(name, absolute)
        return bound, globs

    def absolute(self, module, path):
        """Returns a path from the crate's root; None for paths of other crates."""
        base, rest = list(module), list(path)
        if rest[0] == "crate":
            return tuple(rest[1:])
        if rest[0] == "self":
            return tuple(base + rest[1:])
        if rest[0] == "super":
            while rest and rest[0] == "super":
                base, rest = base[:-1], rest[1:]
            return tuple(base + rest)
        return tuple(base + rest) if tuple(base + rest[:1]) in self.files else None

    def resolve(self, path, seen=()):
        """Returns the module of the file that defines the item at an absolute path."""
        if path in self.files or path in seen:
            return path if path in self.files else None
        module = path
        while module and module not in self.files:
            module = module[:-1]
        name, rest = path[len(module)], path[len(module) + 1 :]
        if name in self.items[module]:
            return module
        bound, globs = self.uses[module]
        if name in bound:
            return self.resolve(bound[name] + rest, (*seen, path))
        for glob in globs:
            found = self.resolve(glob + (name,), (*seen, path))
            if found is not None and found != glob:
                return found
        return module

    def edges(self, module):
        """Returns the modules that a module names, except its own descendants."""
        text = self.text[module]
        paths = [path for _, tree in USE.findall(text) for path, _ in leaves(tree)]
        rest = USE.sub("", text)
        paths += [[head, *tail.strip(":").split("::")] for head, tail in PATH.findall(rest)]
        found = set()
        for path in paths:
            absolute = self.absolute(module, [part for part in path if part != "*"] or path)
            target = None if absolute is None else self.resolve(absolute)
            if target is not None and target[: len(module)] != module:
                found.add(target)
        return found

    def name(self, module):
        return str(self.files[module].relative_to(self.root.parent.parent))


def components(graph):
    """Returns the strongly connected components with more than one node (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def main():
    sys.setrecursionlimit(10_000)
    failed, used = False, set()
    for root in sorted(Path(__file__).resolve().parent.parent.glob("crates/*")):
        crate = Crate(root)
        graph = {module: crate.edges(module) for module in crate.files}
        for component in components(graph):
            names = [crate.name(module) for module in component]
            if ALLOWED & set(names):
                used |= ALLOWED & set(names)
                continue
            failed = True
            print(f"import cycle of {len(names)} files:")
            for module in component:
                inside = sorted(crate.name(to) for to in graph[module] if to in component)
                print(f"  {crate.name(module)} -> {', '.join(Path(to).name for to in inside)}")
    for name in sorted(ALLOWED - used):
        failed = True
        print(f"{name} is in no import cycle: remove it from ALLOWED in .ci/cycles.py")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
