"""Settings, data, model, checkpoints and the training loop."""
