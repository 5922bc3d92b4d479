"""What the image is built by: it runs in the Dockerfile."""
