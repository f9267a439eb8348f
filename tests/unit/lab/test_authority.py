"""The registry's certificate and login."""

from __future__ import annotations

import stat
from pathlib import Path

import bcrypt
import pytest
from cryptography import x509

from gpurack.lab import authority


def test_the_certificate_is_signed_by_the_authority_and_names_the_address(tmp_path: Path) -> None:
    served = authority.served(tmp_path / "registry", tmp_path / "keys" / "ca.pem", "10.77.0.2")
    ca = x509.load_pem_x509_certificate(served.ca.read_bytes())
    leaf = x509.load_pem_x509_certificate(served.certificate.read_bytes())
    leaf.verify_directly_issued_by(ca)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.77.0.2"]


def test_a_certificate_is_kept_until_the_address_changes(tmp_path: Path) -> None:
    folder, ca = tmp_path / "registry", tmp_path / "ca.pem"
    first = authority.served(folder, ca, "10.77.0.2").certificate.read_bytes()
    assert authority.served(folder, ca, "10.77.0.2").certificate.read_bytes() == first
    assert authority.served(folder, ca, "10.77.0.3").certificate.read_bytes() != first


def test_a_certificate_near_its_end_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, ca = tmp_path / "registry", tmp_path / "ca.pem"
    first = authority.served(folder, ca, "10.77.0.2").certificate.read_bytes()
    monkeypatch.setattr(authority, "RENEW_BEFORE", authority.SERVER_LIFE)
    assert authority.served(folder, ca, "10.77.0.2").certificate.read_bytes() != first


def test_secret_files_are_readable_by_root_alone(tmp_path: Path) -> None:
    served = authority.served(tmp_path, tmp_path / "ca.pem", "10.77.0.2")
    login = authority.login(tmp_path, "rack")
    for path in (served.key, login.password, login.htpasswd):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_login_opens_and_is_kept(tmp_path: Path) -> None:
    login = authority.login(tmp_path, "rack")
    user, _, hashed = login.htpasswd.read_text().strip().partition(":")
    password = login.password.read_text().strip()
    assert user == "rack"
    assert bcrypt.checkpw(password.encode(), hashed.encode())
    assert not bcrypt.checkpw(f"{password}x".encode(), hashed.encode())
    assert authority.login(tmp_path, "rack").password.read_text().strip() == password
