"""A backend over HTTP, for commands and for the page that one opens. Standard library only: every command pays for
its imports."""
