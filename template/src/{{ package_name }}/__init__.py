"""Settings, data, model, and the training loop."""
