"""What every part of the process uses: jobs, loops, folders, log."""
