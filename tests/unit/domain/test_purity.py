"""The domain opens no file. (That it imports nothing that touches the world is import-linter's part.)"""

import ast
from pathlib import Path

import tpujob.domain


def test_no_module_of_the_domain_calls_open() -> None:
    calls = [
        f"{path.name}:{node.lineno}"
        for path in Path(tpujob.domain.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("open", "input", "print")
    ]
    assert calls == []
