"""Run the project in its container, or natively."""
