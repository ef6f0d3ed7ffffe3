"""What tpujob assumes about Google Cloud and no document says, asked of a project: the emulated one in every run of the
tests, a real one by `make live`. A comment in the product that calls something inferred names the test here that would
show it wrong: `inferred (live: NAME)`.
"""
