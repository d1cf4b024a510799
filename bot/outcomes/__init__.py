"""Judge how models, tools and skills did, and propose to an operator what follows."""
