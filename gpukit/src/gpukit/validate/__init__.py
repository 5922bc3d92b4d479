"""Check a project's generated files: `./launch validate`, and the template's hook."""
