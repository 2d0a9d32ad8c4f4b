"""No sandbox reaches what is somebody's inside, however the address is written."""

from __future__ import annotations

import socket

import pytest

from zubble_sandbox.egress import addresses

INSIDE = """
    0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 127.0.0.1 127.255.255.254 169.254.169.254 169.254.170.2 172.16.0.1
    172.31.255.255
    192.0.0.8 192.0.0.192 192.0.2.1 192.88.99.1 192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1
    203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 ::ffff:0:8.8.8.8
    64:ff9b::7f00:1 64:ff9b:1::808:808 100::1
    2001::1 2001:db8::1 2002:7f00:1:: 2002:808:808:: 3fff::1 5f00::1
    fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1
    fe80::1%eth0 2606:4700::1111%eth0
""".split()  # noqa: SIM905 - a table
PUBLIC = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 172.15.255.255
    172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255
    2001:200::1 2001:4860:4860::8888 2606:4700:4700::1111 2a00:1450::1 3ffe::1
""".split()  # noqa: SIM905 - a table


@pytest.mark.parametrize("address", INSIDE)
def test_an_inside_address_is_refused(address):
    assert addresses.problem(address) == "not a public address"


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_refused(address):
    assert addresses.problem(address) is None


@pytest.mark.parametrize(
    "text", ["", "a.example", "127.1", "0x7f.0.0.1", "010.0.0.1", "8.8.8.8 ", "8.8.8.8:80", "[::1]"]
)
def test_what_is_no_plain_address_is_refused(text):
    assert addresses.problem(text) == "no address at all"


def test_the_kernel_knows_our_own_addresses():
    assert addresses._is_ours(4, socket.inet_aton("127.0.0.1"))
    assert addresses._is_ours(4, socket.inet_aton("127.1.2.3"))
    assert not addresses._is_ours(4, socket.inet_aton("8.8.8.8"))
    if socket.has_dualstack_ipv6():
        assert addresses._is_ours(6, socket.inet_pton(socket.AF_INET6, "::1"))
        assert not addresses._is_ours(6, socket.inet_pton(socket.AF_INET6, "2606:4700::1111"))


def test_where_the_kernel_cannot_be_asked_every_address_is_ours(monkeypatch):
    def refuses(*_):
        raise PermissionError

    monkeypatch.setattr(addresses.socket, "socket", refuses)
    assert addresses.problem("8.8.8.8") == "an address of this machine"
