"""What an error text means."""
