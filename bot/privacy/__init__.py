"""What ends: retention, forgetting a person, exports of what is stored of them."""
