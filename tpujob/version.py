"""The version of tpujob, which the build and `deploy/up.sh` read from this file."""

__version__ = "0.1.0"
