"""The sign-in of commands to a deployed backend: at Google in a browser, stored on this machine; tokens of programs.

Commands and rights are defined elsewhere. The path of a command that is signed in imports the standard library only;
google-auth is imported for programs.
"""
