"""Fixtures: a registry, and no logins of the user who runs the tests."""

from __future__ import annotations

from tests.support.registry_fixtures import no_logins as no_logins
from tests.support.registry_fixtures import registry as registry
