"""`python -m envbuild`: the same as the `envbuild` command."""

from envbuild.start import main

if __name__ == "__main__":
    main()
