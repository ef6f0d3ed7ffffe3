"""What `tpujob cost` prints: one module for each command, as a page, as CSV and as a picture. Pure: what is shown is in
the views that `JobsApi` sends; no rule of money is here."""
