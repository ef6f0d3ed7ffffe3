"""Reads the setup of a project on Google Cloud over REST, for `doctor` and `quota`; keeps users' secrets.

`doctor/` draws the conclusions. Callers import single modules: a command that needs only the usual project of
`identity.py` must not pay for the others.
"""
