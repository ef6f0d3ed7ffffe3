"""The error of a setting that cannot work."""


class ConfigError(Exception):
    """A setting cannot work; running again cannot help. The message is one line for a person."""
