"""The machine: its engine, driver, and GPUs."""
