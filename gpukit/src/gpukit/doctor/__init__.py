"""Check whether this machine has what the container needs. Standard library only: it runs on the bare host."""
