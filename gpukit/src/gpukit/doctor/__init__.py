"""Does this machine have what the container needs? Standard library only: it runs on the bare host."""
