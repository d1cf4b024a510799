"""Bound what models cost: reserve it before a call, count it after, keep it in budgets, show it by `/usage`."""
