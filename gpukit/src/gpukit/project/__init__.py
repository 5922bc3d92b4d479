"""The project: its location, stack.json, devcontainer.json, pyproject.toml. Imports no other part of gpukit."""
