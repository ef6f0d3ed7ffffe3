"""A backend in a world of its own."""

from tests.support.stage import stage

__all__ = ["stage"]
