"""What this project knows about its container and its GPU: doctor looks at the host, verify looks inside.

This folder belongs to the template. `copier update` brings its changes; edits made here meet them as conflicts.
"""
