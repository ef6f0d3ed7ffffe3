"""Turns records into the text that commands print. Pure, except for the live panel: no I/O, no call of the backend.

Each page is a module, so that a command imports only the pages that it prints.
"""
