"""The project: where it is, stack.json, devcontainer.json, pyproject.toml. Imports nothing else of gpukit."""
