"""`import dmr` as a wheel installs it: the package beside this file, under the name that programs know.

Its folder has another name on purpose. Up to 0.1.0 the files `dmr/*.py` belonged to the distribution `penstock`, and
pip removes what an old release of that owned after it has installed what the new one depends on. In 0.3.0 nobody
upgrades from 0.1.0 any more, and the folder can be `dmr`.
"""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock_dmr import *  # noqa: F403
else:
    _folder = Path(__file__).with_name("penstock_dmr")
    _spec = spec_from_file_location("dmr", _folder / "__init__.py", submodule_search_locations=[str(_folder)])
    sys.modules["dmr"] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules["dmr"])
