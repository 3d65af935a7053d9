"""`python -m inlay` is the command line `inlay`."""

from inlay.cli import main

if __name__ == "__main__":
    main()
