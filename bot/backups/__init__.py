"""Write backups at set times."""
