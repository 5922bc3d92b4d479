"""`gpukit plan`: what would be downloaded, and whether it fits every target."""
