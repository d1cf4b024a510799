"""The way of a message: stored, claimed, worked on in a turn, answered."""
