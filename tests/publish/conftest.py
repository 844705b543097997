"""Fixtures: a registry, no logins of the user who runs the tests, keys and places of signed images."""

from __future__ import annotations

from tests.support.registry_fixtures import no_logins as no_logins
from tests.support.registry_fixtures import registry as registry
from tests.support.signed_images import other as other
from tests.support.signed_images import place as place
from tests.support.signed_images import team as team
