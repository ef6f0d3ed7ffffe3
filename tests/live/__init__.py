"""Assumptions of tpujob about Google Cloud that no document states, tested in a project: the emulated one in every
run of the tests, a real one by `make live`. A comment in the product that calls something inferred names the test here
that would show it wrong: `inferred (live: NAME)`.
"""
