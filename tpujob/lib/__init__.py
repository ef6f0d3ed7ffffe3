"""Small things that every room may import: they know nothing of jobs, and import no other room."""
