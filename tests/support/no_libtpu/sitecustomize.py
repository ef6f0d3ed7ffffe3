"""On PYTHONPATH: a Python in which libtpu is not installed, whatever the one that runs the tests has."""

from importlib import metadata

_from_name = metadata.Distribution.from_name.__func__  # type: ignore[attr-defined]


def _without(kind: type[metadata.Distribution], name: str) -> metadata.Distribution:
    if name.startswith("libtpu"):
        raise metadata.PackageNotFoundError(name)
    return _from_name(kind, name)


metadata.Distribution.from_name = classmethod(_without)  # type: ignore[method-assign, assignment]
