"""Every host has one spelling; an allow-list and a request are compared in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zubble_queue.contracts.hosts import host_name, host_pattern, matches

LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=2, max_size=4).map(".".join)


@pytest.mark.parametrize(
    ("written", "spelling"),
    [
        ("pypi.org", "pypi.org"),
        ("PyPI.Org", "pypi.org"),
        ("*.Example.ORG", "*.example.org"),
        ("b\u00fccher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("stra\u00dfe.example", "xn--strae-oqa.example"),
        ("1.2.example.org", "1.2.example.org"),
    ],
)
def test_an_entry_is_kept_in_its_one_spelling(written: str, spelling: str):
    assert host_pattern(written) == spelling


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "'' is not the name of a host"),
        ("localhost", "'localhost' has no dot in it"),
        ("example.org.", "'example.org.' must not end with a dot"),
        ("https://example.org/a", "'https://example.org/a' must be a name, not a URL"),
        ("example.org:443", "'example.org:443' must be a name, without a port and not an address"),
        ("me@example.org", "'me@example.org' must not hold a user name"),
        ("evil.org\0.example.org", "'evil.org\\x00.example.org' must not hold spaces or control characters"),
        ("a b.org", "'a b.org' must not hold spaces or control characters"),
        ("10.0.0.1", "'10.0.0.1' is an address, not a name"),
        ("127.1", "'127.1' is an address, not a name"),
        ("2130706433", "'2130706433' is an address, not a name"),
        ("0x7f000001", "'0x7f000001' is an address, not a name"),
        ("0177.0.0.01", "'0177.0.0.01' is an address, not a name"),
        ("a.0x7f", "'a.0x7f' is an address, not a name"),
        ("::1", "'::1' must be a name, without a port and not an address"),
        ("[::ffff:127.0.0.1]", "'[::ffff:127.0.0.1]' must be a name, without a port and not an address"),
        ("*", "'*' may have a star only as its first label, as in *.example.org"),
        ("a.*.org", "'a.*.org' may have a star only as its first label, as in *.example.org"),
        ("*.*.example.org", "'*.*.example.org' may have a star only as its first label, as in *.example.org"),
        ("*.org", "'*.org' is too wide: at least two labels must follow the star, as in *.example.org"),
        ("*.", "'*.' is too wide: at least two labels must follow the star, as in *.example.org"),
        ("-a.example.org", "'-a.example.org' is not the name of a host"),
        ("a_b.example.org", "'a_b.example.org' is not the name of a host"),
        ("a..org", "'a..org' is not the name of a host"),
        ("xn--zz.example", "'xn--zz.example' is not the name of a host"),
        ("a" * 64 + ".org", f"'{'a' * 64}.org' is not the name of a host"),
        ("\u00fc" * 100_000 + ".org", f"'{chr(0xFC) * 80}' is not the name of a host"),
    ],
)
def test_what_is_no_name_is_refused_with_one_sentence(written: str, problem: str):
    with pytest.raises(ValueError) as refused:
        host_pattern(written)
    assert str(refused.value) == problem


@pytest.mark.parametrize("text", ["b\u00fccher.example", "\u212aey.org", "a\uff0eorg", "a\u3002org"])
def test_a_request_names_no_host_beyond_ascii(text: str):
    with pytest.raises(ValueError, match="A-labels"):
        host_name(text)


@given(NAMES, NAMES)
def test_an_entry_covers_its_own_name_only(name: str, other: str):
    assert matches(host_pattern(name), host_name(name.upper()))
    assert matches(host_pattern(name), host_name(other)) == (name == other)


@given(NAMES, LABELS)
def test_a_star_covers_names_below_and_no_other(name: str, label: str):
    pattern = host_pattern(f"*.{name}")
    assert matches(pattern, host_name(f"{label}.{name}"))
    assert not matches(pattern, host_name(name))
    assert not matches(pattern, host_name(f"{label}{name}"))
    assert not matches(pattern, host_name(f"{label}.{name}.evil"))


@given(st.text())
def test_the_spelling_of_an_entry_is_final(text: str):
    try:
        pattern = host_pattern(text)
    except ValueError:
        return
    assert host_pattern(pattern) == pattern
    assert host_name(pattern.removeprefix("*.")) == pattern.removeprefix("*.")
