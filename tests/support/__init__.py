"""Shared by tests of more than one folder: records, servers, worlds, processes, and the verbs of the stories.

There are no tests here. Fixtures that one folder needs are in its `conftest.py`; other code that one folder needs stays
in that folder.
"""
