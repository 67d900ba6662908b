"""`python -m foldaway` is `foldaway`."""

from foldaway.cli import main

if __name__ == "__main__":
    main()
