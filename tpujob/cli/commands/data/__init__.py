"""`tpujob data`: the user's data, copied to where jobs read it and back. How it is copied is in `tpujob.data`."""
