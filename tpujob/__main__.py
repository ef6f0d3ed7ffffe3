"""`tpujob`, also as `python -m tpujob`."""

import sys


def main() -> None:
    """Run the command line and exit with its code, also for Ctrl-C during imports."""
    try:
        from tpujob.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
