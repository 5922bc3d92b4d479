"""What can be asked of a machine: its engine, driver, and cards."""
