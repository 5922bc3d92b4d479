"""What `./launch` is made of. Standard library only: it runs on the host, before any image is there."""
