"""A rehearsal: runs the user's script, kills it, resumes it, and compares every number with an uninterrupted run.

python -m exactrun rehearse -- train.py --batch-size 8

main        which runs are made, and what is said
process     the script in forked processes
recorder    in them: records every step, saves, ends
seen        what a script's state is: kept, generators, variables
files       what it writes besides, and how that is put back
compare     two runs
"""

from exactrun.rehearse.main import main

__all__ = ["main"]
