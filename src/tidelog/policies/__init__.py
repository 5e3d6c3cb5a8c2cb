"""Acting: the policy object, play in environments, and statistics of returns."""
