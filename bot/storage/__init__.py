"""Read and write the rows of each aggregate."""
