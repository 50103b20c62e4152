"""``python -m pagewire.bench``."""

import sys

from pagewire.bench.cli import main

sys.exit(main(sys.argv[1:]))
