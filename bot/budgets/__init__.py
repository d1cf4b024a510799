"""What models cost: reserved before a call, counted after it, bounded by budgets, shown by `/usage`."""
