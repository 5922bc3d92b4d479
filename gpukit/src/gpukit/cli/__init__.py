"""The command line: `gpukit`, and a project's `./launch`."""
