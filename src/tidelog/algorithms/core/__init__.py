"""What algorithms are made of: the contract, hyper-parameters, sampling, optimisation, segments."""
