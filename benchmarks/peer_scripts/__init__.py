"""Scripts that studies run in environments of other packages; they import nothing of tidelog."""
