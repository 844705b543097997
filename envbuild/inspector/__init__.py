"""Program that runs inside the finished image: standard library only, no import from the rest of envbuild, any Python
from 3.8.

The modules of this package are sent to the image's own interpreter as one argument (`envbuild.verify.run_inspector`),
so that nothing has to be mounted and every way of running a command in an image works. `report.main` prints one JSON
document.
"""
