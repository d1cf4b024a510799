"""What an operator uses: the commands, the control socket, checks, backup, status."""
