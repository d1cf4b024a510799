"""How models, tools and skills did, and what follows from it for an operator."""
