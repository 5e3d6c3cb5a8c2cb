"""How fast this machine trains, as a share of what its matrix products allow."""
