"""Parse untrusted files (pages, PDFs, pictures) in a child process."""
