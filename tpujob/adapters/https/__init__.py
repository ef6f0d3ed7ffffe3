"""Files on the web, to be read: `data.objects.Reader`.

Which URLs are safe is said in `data/places.py`, what headers tell in `data/sources/identity.py`. No credentials are
ever sent; proxies are those of the environment.
"""

from tpujob.adapters.https.files import WebFiles

__all__ = ["WebFiles"]
