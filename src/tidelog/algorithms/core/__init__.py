"""Common parts of the algorithms: contract, hyper-parameters, sampling, optimisation, segments."""
