"""`python -m tidelog` is the command line."""

from tidelog.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
