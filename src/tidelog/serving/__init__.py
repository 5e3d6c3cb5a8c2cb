"""A policy over HTTP: JSON in, JSON out, without an import of JAX or training code.

`endpoints` reads requests and computes answers of `POST /act` and `POST /recommend`; `app` is the ASGI application with
its limits, and its server.
"""
