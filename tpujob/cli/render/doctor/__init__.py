"""What `tpujob doctor` prints: its findings, what a probe costs and meets. Pure; what is checked is in `doctor/`."""
