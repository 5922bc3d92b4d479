"""What a bare host lacks: shown as commands, done by --apply, taken back by --undo."""
