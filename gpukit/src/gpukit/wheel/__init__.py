"""Write gpukit as one wheel."""
