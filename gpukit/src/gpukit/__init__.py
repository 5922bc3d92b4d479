"""GPU containers and training for PyTorch projects.

A project's own code may import what docs/api.md lists: parts of `exactrun`, `gpukit.script`, `gpukit.track`, and
`gpukit.project`. Everything else is reached through the command `gpukit`, which is also a project's `./launch`.
"""
