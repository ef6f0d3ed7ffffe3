"""The page at `/docs`: the OpenAPI document as HTML, without a script and without anything of another server."""

import base64
import hashlib
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 3rem } h3 { margin: 2rem 0 0; font: bold 1rem ui-monospace, monospace }
table { border-collapse: collapse } td { padding: .1rem 1rem .1rem 0; vertical-align: top }
code { font: .9rem ui-monospace, monospace } p { margin: .3rem 0 }
"""
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: what a browser may do with the page
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

Document = Mapping[str, Any]


def page(document: Document) -> str:
    """Every route with what it takes and gives, then every shape."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    shapes = document.get("components", {}).get("schemas", {})
    return "".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>',
            f"<style>{STYLE}</style><h1>{title}</h1><p>{escape(info.get('description', ''))}</p>",
            '<p>The same for programs: <a href="openapi.json">/openapi.json</a></p>',
            *_routes(document["paths"]),
            "<h2>Shapes</h2>",
            *(part for name, shape in sorted(shapes.items()) for part in _shape(name, shape)),
        ]
    )


def _routes(paths: Document) -> Iterator[str]:
    before = None
    for path, operations in paths.items():
        for method, it in operations.items():
            tag = next(iter(it.get("tags", ())), "")
            if tag != before:
                yield f"<h2>{escape(tag)}</h2>"
            before = tag
            yield f"<h3>{escape(method.upper())} {escape(path)}</h3>"
            yield f"<p>{escape(it.get('description', ''))}</p><table>"
            for one in it.get("parameters", ()):
                yield _row(one["name"], one["schema"], one["in"], one.get("description", ""))
            for where, part in (
                ("body", it.get("requestBody", {})),
                ("answer", _answer(it["responses"])),
            ):
                for content in part.get("content", {}).values():
                    yield _row(where, content.get("schema", {}))
            yield "</table>"


def _answer(responses: Document) -> Document:
    nothing: Document = {}
    return next((answer for status, answer in responses.items() if status.startswith("2")), nothing)


def _shape(name: str, shape: Document) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(shape.get("description", ""))}</p><table>'
    for key, inner in shape.get("properties", {}).items():
        yield _row(key, inner, inner.get("description", ""))
    yield "</table>"


def _row(name: str, schema: Document, *words: str) -> str:
    text = escape(", ".join(word for word in words if word))
    return f"<tr><td><code>{escape(name)}</code><td><code>{_kind(schema)}</code><td>{text}"


def _kind(schema: Document) -> str:
    """The type of a value, with links to shapes."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " | ".join(map(_kind, schema[several]))
    if "enum" in schema:
        return escape(" | ".join(map(repr, schema["enum"])))
    if schema.get("type") == "array":
        return f"[{_kind(schema.get('items', {}))}]"
    return escape(str(schema.get("const") or schema.get("type", "any")))
