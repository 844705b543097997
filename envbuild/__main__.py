"""`python -m envbuild`: the same as the `envbuild` command."""

from envbuild.cli.start import main

if __name__ == "__main__":
    main()
