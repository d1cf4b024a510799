"""Schedules: work, reminders and watched pages at set times (docs/schedules.md)."""
