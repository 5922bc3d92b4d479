"""Install what a host lacks: print the commands, run them with --apply, revert them with --undo."""
