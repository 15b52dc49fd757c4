"""Which nodes have what a stage asks for."""

import pytest

from penstock.api import Node
from penstock.workflow.asks import Asks
from penstock_planning.hold.fitting import unfit, wanted

NODES = (
    Node(
        "n1", "IDLE", 4, True, memory=8192.0, features=("ib", "rome"), gres="gpu:RTX:2(S:0),VramPerGpu:no_consume:48G"
    ),
    Node("n2", "IDLE", 4, True, memory=4096.0, features=("ib",), gres="bandwidth:lustre:4G"),
    Node("n3", "IDLE", 4, True, gres=""),
)


@pytest.mark.parametrize(
    ("asks", "names"),
    [
        (Asks(), []),
        (Asks(gres="gpu:1"), ["n2", "n3"]),
        (Asks(gres="gpu:rtx:3"), ["n1", "n2", "n3"]),
        (Asks(gres="VramPerGpu:24G"), ["n2", "n3"]),
        (Asks(gres="bandwidth:lustre:1G"), ["n1", "n3"]),
        (Asks(gpus="8"), ["n2", "n3"]),
        (Asks(gpus="rtx:4"), ["n2", "n3"]),
        (Asks(gpus="a100:4"), ["n1", "n2", "n3"]),
        (Asks(constraint="ib&rome"), ["n2", "n3"]),
        (Asks(constraint="[ib*1|rome]"), []),
        (Asks(memory="6G"), ["n2"]),
        (Asks(exclude="n[1-2],"), ["n1", "n2"]),
        (Asks(gres="no such thing"), []),
    ],
)
def test_nodes_without_what_a_stage_asks_for(asks, names):
    assert unfit(asks, NODES) == names


def test_what_it_asks_for_is_told_in_the_words_of_sbatch():
    assert wanted(Asks(gres="gpu:1", memory="4G", ntasks="3")) == "--mem=4G --gres=gpu:1"
