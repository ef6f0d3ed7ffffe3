"""Checks of a context, and the cure for each finding. Pure: takes facts that were read, and returns findings.

A check has a function `check_...(context, fact) -> Finding` in the module of its subject, a field of
`cloud.ProjectSeen`, code in `adapters/google/project.py` that reads the fact, and a line in `cloud.examine`. Callers
import the modules, as not every command pays for all of them. `cli/commands/doctor.py` prints findings.
"""
