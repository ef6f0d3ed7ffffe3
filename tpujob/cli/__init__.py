"""The command line: words in, one call of `JobsApi`, text out. No rule of a job is here.

`commands/` has a file for each group of commands, `render/` makes text of records. Modules are imported directly, as
every command pays for its imports.
"""
