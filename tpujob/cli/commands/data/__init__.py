"""`tpujob data`: the commands that copy and pack the user's data. The copying itself is in `tpujob.data`."""
