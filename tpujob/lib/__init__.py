"""Small helpers that every room may import. They know nothing of jobs and import no other room."""
