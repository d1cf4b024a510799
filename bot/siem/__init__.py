"""Push rows of the audit to a SIEM."""
