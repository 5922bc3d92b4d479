"""The command `gpukit`, which is also `./launch`."""
