"""Checks of a context, and what to do about each finding. Pure: what was seen comes in, findings go out.

How a project is looked at belongs to `adapters/google/`; how findings are printed, to `cli/render/`.
"""
