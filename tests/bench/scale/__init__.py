"""A real backend with ten thousand jobs, whose hosts are hollow: what it costs, and how quick it is."""
