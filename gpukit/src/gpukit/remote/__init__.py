"""`./launch --host me@box COMMAND`: the project and its commands on another machine, over ssh."""
