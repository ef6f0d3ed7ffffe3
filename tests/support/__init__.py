"""What tests of more than one folder share: records, servers, worlds, processes, and the verbs of the stories.

No tests here, and no test module is imported by another one: what two of them need belongs here, or in a `conftest.py`
if it is a fixture. What one folder alone needs stays in that folder.
"""
