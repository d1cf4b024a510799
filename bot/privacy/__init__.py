"""End what is stored: retention, forgetting a person, and exports of what is stored of them."""
