"""One file for each group of commands: arguments in, one call of `JobsApi`, one page out.

What is printed is made in `cli/render/`, which is pure; a module here is imported only when its command runs.
"""
