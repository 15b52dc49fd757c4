"""Addresses and names of isolated nodes: chosen free, and none of them twice."""

import ipaddress
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import PenstockError, UserError
from penstock_lab.cluster.lifecycle import up
from penstock_lab.cluster.network import Subnet, free_subnet, hosts_file, link_name
from penstock_lab.cluster.spec import MAX_NODES, ClusterSpec

POOL = ipaddress.IPv4Network("198.18.0.0/15")


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(17, 32)), max_size=12))
def test_a_subnet_overlaps_none_that_is_taken(numbers):
    # Half of them in the range from which is chosen.
    taken = [
        ipaddress.IPv4Network((number if i % 2 else int(POOL[0]) + number % POOL.num_addresses, bits), strict=False)
        for i, (number, bits) in enumerate(numbers)
    ]
    try:
        subnet = free_subnet([*map(str, taken), "default"])
    except PenstockError:
        assert sum(net.num_addresses for net in taken if net.overlaps(POOL)) >= POOL.num_addresses / 2
        return
    addresses = [ipaddress.IPv4Address(subnet.login), *(subnet.node(i) for i in range(MAX_NODES))]
    assert len(set(map(str, addresses))) == MAX_NODES + 1
    network = ipaddress.IPv4Network(f"{subnet.login}/23", strict=False)
    assert network.subnet_of(POOL)
    assert all(ipaddress.IPv4Address(address) in network for address in addresses)
    assert not any(network.overlaps(net) for net in taken)


def test_a_full_range_is_an_error():
    with pytest.raises(PenstockError, match="no free network"):
        free_subnet(["198.18.0.0/16", "198.19.0.0/16"])


def test_a_way_to_everywhere_takes_no_network():
    """As a VPN has it that goes before the default route, or leaves out the networks of the site."""
    assert free_subnet(["default", "0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "196.0.0.0/6"])


def test_hosts_name_everyone_once_and_keep_what_the_machine_knows():
    machine = "127.0.0.1 localhost login login.example.org # here\n::1 localhost\n# 1.2.3.4 n1\n\n10.0.0.1 n2 mirror\n"
    text = hosts_file("login", Subnet("198.18.2.1"), ["n1", "n2"], machine)
    assert text.splitlines() == [
        "198.18.2.1 login",
        "198.18.2.2 n1",
        "198.18.2.3 n2",
        "127.0.0.1 localhost",
        "::1 localhost",
        "10.0.0.1 mirror",
    ]


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain"])
def test_localhost_stays_the_loopback_where_the_machine_has_no_other_name(name):
    text = hosts_file("localhost", Subnet("198.18.2.1"), ["n1"], f"127.0.0.1 {name} old\n::1 localhost\n")
    assert text.splitlines() == ["198.18.2.2 n1", f"127.0.0.1 {name} old", "::1 localhost"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can isolate")
def test_a_machine_with_the_name_of_a_node_is_refused(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "n2.example.org")
    monkeypatch.setattr("penstock_lab.cluster.lifecycle.check_programs", lambda: pytest.fail("went on"))
    with pytest.raises(UserError, match="--isolated: this machine is called n2"):
        up(ClusterSpec(nodes=2, isolated=True))
    monkeypatch.setattr("penstock_lab.cluster.network._PACKAGE_OF", {"nosuch": "it"})
    with pytest.raises(UserError, match="missing nosuch"):
        up(ClusterSpec(nodes=1, isolated=True))


def test_a_link_fits_the_kernel_and_follows_from_the_folder():
    names = {link_name(Path(f"/var/tmp/{i}")) for i in range(100)}
    assert len(names) == 100
    assert all(len(name) <= 15 for name in names)


def test_only_root_can_isolate(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError, match="--isolated: only root") as caught:
        ClusterSpec(isolated=True).check()
    assert caught.value.exit_code == 2
