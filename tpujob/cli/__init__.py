"""The command line: parses arguments, calls `JobsApi`, prints text. It holds no rules about jobs.

`commands/` has a file for each group of commands; `render/` turns records into text. Import modules directly: every
command pays for its imports.
"""
