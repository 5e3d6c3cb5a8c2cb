"""Environments of their own for what `.ci/run` does: `nox -s docs`, `nox -s tests`, `nox -s lint`."""

import nox


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site; the tutorials run."""
    session.install("-e", ".[docs]")
    session.run("make", "-C", "docs", "html", external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the default tier, or what is named: `nox -s tests -- -m full`."""
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, format and types."""
    session.install("-e", ".[test]")
    for command in (
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
        ["mypy", "--config-file", "benchmarks/mypy.ini"],
    ):
        session.run(*command)
