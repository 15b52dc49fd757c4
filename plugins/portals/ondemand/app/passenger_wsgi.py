"""What Passenger runs, as the user who looks at the page, with the Python of Open OnDemand's host."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from penstock_portals.asking import find_socket
from penstock_portals.page import application_at

application = application_at(find_socket(os.environ))
