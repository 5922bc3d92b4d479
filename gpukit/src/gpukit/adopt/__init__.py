"""`gpukit adopt`: the container and its tools for a repository that exists already, of which no file changes."""
