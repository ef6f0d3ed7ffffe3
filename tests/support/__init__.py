"""Shared by tests of more than one folder: records, servers, worlds, processes, and the verbs of the stories.

No tests here, and no test module imports another: code that two modules need belongs here, or in a `conftest.py` if it
is a fixture. Code that one folder needs stays in that folder.
"""
