"""`python -m zubble_queue.cli`: how local workers are started."""

import sys

from zubble_queue.cli.main import main

sys.exit(main())
