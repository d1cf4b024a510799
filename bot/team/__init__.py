"""Those who belong to the team, and what they did: pairing, roles, departures, the audit."""
