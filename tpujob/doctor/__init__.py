"""Checks of a context, and what to do about each finding. Pure: what was seen comes in, findings go out.

A check is a function `check_...(context, seen) -> Finding` in the module of its subject, a field of
`cloud.ProjectSeen`, a look in `adapters/google/project.py` that fills it, and a line in `cloud.examine`. Callers import
the modules, as not every command pays for all of them. How findings are printed is in `cli/commands/doctor.py`.
"""
