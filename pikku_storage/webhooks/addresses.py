"""Where a webhook may be sent to.

A name is looked up once, every address that it has is judged, and the connection goes to one of exactly these: nobody
can answer the second question differently from the first.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from pikku_storage.conf import settings
from pikku_storage.exceptions import WebhookBlockedError

Address: TypeAlias = IPv4Address | IPv6Address


def allowed_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host, all of which may be connected to. Raises `WebhookBlockedError` if one of them may not,
    and `OSError` if there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # IPv6 names the interface after a percent sign. The socket takes addresses as text.
    addresses = list(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found))
    if not _is_listed(host):
        for address in addresses:
            check_address(host, ip_address(address))
    return addresses


def check_address(host: str, address: Address) -> None:
    """Raises `WebhookBlockedError` unless the address is public, or one of the networks in `WEBHOOK_ALLOWED_HOSTS`."""
    meant = _meant(address)
    if not (is_public(meant) or any(meant in network for network in _networks())):
        raise WebhookBlockedError(host, str(address))


def is_public(address: Address) -> bool:
    """Whether it is a host of the internet. What IANA keeps for special use is none: private, shared (100.64/10),
    link-local (where clouds answer for metadata), loopback, unspecified, multicast, and translation prefixes, behind
    which anything may be."""
    return address.is_global and not (address.is_reserved or address.is_multicast or address.is_unspecified)


def literal(host: str) -> Address | None:
    """The address that a host is written as, if it is one."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _meant(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one, where there is any."""
    if isinstance(address, IPv6Address):
        teredo = address.teredo
        return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or address
    return address


def _is_listed(host: str) -> bool:
    host = host.lower().rstrip(".")
    return any(
        host == pattern or (pattern.startswith("*.") and host.endswith(pattern[1:]))
        for pattern in map(str.lower, settings.WEBHOOK_ALLOWED_HOSTS)
    )


def _networks() -> list[IPv4Network | IPv6Network]:
    networks = []
    for pattern in settings.WEBHOOK_ALLOWED_HOSTS:
        try:
            networks.append(ip_network(pattern, strict=False))
        except ValueError:
            continue
    return networks
