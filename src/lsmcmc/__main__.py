"""`python -m lsmcmc` is the command line."""

from lsmcmc.cli import main

if __name__ == "__main__":
    main()
