"""A browser whose user signs in and agrees: `python -P tests/support/browser.py ADDRESS`."""

import sys
import urllib.request

with urllib.request.urlopen(
    sys.argv[1], timeout=30
) as answer:  # follows the redirect to the command
    answer.read()
