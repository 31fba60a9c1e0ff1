"""`python -m t5x_lite`."""

import sys

from t5x_lite.cli import main

sys.exit(main())
