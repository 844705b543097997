"""Parts of the checks in processes of their own, where the program is not one file."""

from __future__ import annotations

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], {}, ""))
