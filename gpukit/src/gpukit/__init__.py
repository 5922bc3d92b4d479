"""GPU containers and training for PyTorch projects.

A project's own code may import `gpukit.train` and `gpukit.project`: docs/api.md lists what stays compatible.
Everything else is reached through the command `gpukit`, which is also a project's `./launch`.
"""
