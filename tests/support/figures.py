"""Prints the size of the house. To know, not to obey: no test reads these figures.

usage: python -m tests.support.figures
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.paths import ROOT

#: a module's own number: `MAX_SESSIONS = 64`
_TUNABLE = re.compile(r"^_?[A-Z][A-Z0-9_]* *(?::[^=]+)?= *[-\d.]", re.M)


def main() -> None:
    product = _texts((ROOT / "tpujob").rglob("*.py"))
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for text in product.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    figures = {
        "lines of tpujob/": _lines(product),
        "modules": len(product),
        "packages": len({path.parent for path in product}),
        "modules in the largest of them": max(Counter(path.parent for path in product).values()),
        "functions over 50 lines": sum(length > 50 for length in lengths),
        "numbers that can be tuned": sum(len(_TUNABLE.findall(text)) for text in product.values()),
        "lines of workloads/": _lines(_texts((ROOT / "workloads").rglob("*.py"))),
        "lines of tests/": _lines(_texts((ROOT / "tests").rglob("*.py"))),
        "words of docs/": sum(
            len(text.split()) for text in _texts((ROOT / "docs").rglob("*.md")).values()
        ),
    }
    print("the house:", ", ".join(f"{count:,} {name}" for name, count in figures.items()))


def _texts(paths: Iterable[Path]) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in paths}


def _lines(texts: dict[Path, str]) -> int:
    return sum(text.count("\n") for text in texts.values())


if __name__ == "__main__":
    main()
