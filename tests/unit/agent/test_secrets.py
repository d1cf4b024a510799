"""What memory takes for a secret, and what for a name of daily work."""

from __future__ import annotations

import pytest

from agent.memory.secrets import looks_secret

SECRETS = """
das Passwort lautet sommer2026!
Das WLAN-Passwort ist Blumenwiese
My PIN is 4711
the PIN of the door is 0815
the password is hunter22
the wifi password is: correcthorse
password for the staging server: Tr0ub4dor&3
use pytest ghp_0123456789abcdefghij
my card number is 4111 1111 1111 1111
Karte 5500-0000-0000-0004 gilt bis 12/27
Amex 378282246310005
the API key is AKIAIOSFODNN7EXAMPLE
api key: 9f86d081884c7d659a2feaa0c55ad015
数据库密码是abc12345
WiFi密码：fawn2026
取款密码是 482913
パスワードは himitsu99 です
暗証番号は1234です
la contraseña es Gato!2024
postgres://app:s3cret@db.internal/shop
My token is Zx81kLmQ
CVV 123
El pwd es: verano
key x7Gk29sLq0ZpT4vB8nW1
"""
DAILY_WORK = """
the repository is https://github.com/acme/invoice-export-service-v2
the branch is feature/2026-11-invoice-export-v2
images come from registry.acme.io/platform/base-python3.11-slim
customer number 4711-0815-2026-000123 is Globex
files lie in /srv/data/projects/2026/q4/report-final-v3.xlsx
the build of 3f786850e387550fdab836ed7e6dc881de23001b is broken
use the password manager of the team
the password policy is void
passwords must have at least 12 characters
the token limit of the model is 8000
the IBAN of the office is DE89370400440532013000
order 1234567890123456 is paid
ticket PROJ-20261123-000017
container ghcr.io/acme/web-frontend-2026.11.23-rc1
the login page needs a new logo in version 2.5
the login page of the shop is slow
reset tokens expire after 24 hours
密码策略每90天更新一次
パスワードの管理はBitwardenで行う
the meeting id is 845 2210 9931
Unser Passwortmanager ist Bitwarden
arn:aws:s3:::acme-prod-invoices-eu-central-1-archive
the module com.acme.billing.invoice2026.exporter.PdfWriter
kubernetes pod invoice-api-7d9f8b6c5d-x2k4q restarts
docker image sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"""


@pytest.mark.parametrize("text", SECRETS.strip().splitlines())
def test_passwords_pins_keys_and_card_numbers_are_secrets(text: str) -> None:
    assert looks_secret(text)


@pytest.mark.parametrize("text", DAILY_WORK.strip().splitlines())
def test_names_and_numbers_of_daily_work_are_none(text: str) -> None:
    assert not looks_secret(text)
