"""The training speed of this machine, as a share of the speed of its matrix products."""
