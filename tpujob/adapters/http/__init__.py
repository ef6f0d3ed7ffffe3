"""A backend over HTTP, for commands and the page that they open. Standard library only: every command imports it."""
