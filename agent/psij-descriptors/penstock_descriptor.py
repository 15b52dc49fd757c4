"""What PSI/J looks for, in a folder of this name, to know an executor by its name."""

from packaging.version import Version
from psij.descriptor import Descriptor

__PSI_J_EXECUTORS__ = [
    Descriptor(
        name="penstock", nice_name="Penstock", version=Version("0.0.1"), cls="penstock.tools.psij.PenstockJobExecutor"
    )
]
