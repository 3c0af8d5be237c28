"""``python -m acclimate``."""

import sys

from acclimate.cli import main

sys.exit(main())
