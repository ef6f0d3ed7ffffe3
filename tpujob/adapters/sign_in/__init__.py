"""How a command shows a deployed backend who runs it: signing in at Google, what is kept of it, tokens for programs.

Which commands there are is not decided here, nor who may do what. Standard library where a command that has signed in
comes through; google-auth is imported for programs alone.
"""
