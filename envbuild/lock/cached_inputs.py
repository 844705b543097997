"""The report after a failed fetch or lock: what is in the store already, and the lines of a site file that would supply
the rest."""

from __future__ import annotations

from collections.abc import Iterable

from envbuild.core.console import Reporter
from envbuild.core.errors import EnvbuildError
from envbuild.core.store.store import Store
from envbuild.core.text import amount
from envbuild.lock.inputs import Input
from envbuild.lock.missing_inputs import site_lines
from envbuild.net.site import Site


def report_already_cached(
    image: str, entries: Iterable[Input], store: Store, site: Site, reporter: Reporter, errors: Iterable[EnvbuildError]
) -> None:
    """Report how much of an image is already in the store if something else of it is not available, and the lines of a
    site file that would supply the rest."""
    cached = {entry.sha256 for entry in entries if store.has_blob(entry.sha256)}
    if cached:
        size = amount(sum(store.blob(sha256).stat().st_size for sha256 in cached))
        several = "1 input" if len(cached) == 1 else f"{len(cached)} inputs"
        reporter.info(
            f"{image}: {several}, {size}, in the store {store.root}; the next run fetches only what is missing"
        )
    report_site_lines(image, errors, site, reporter)


def report_site_lines(image: str, errors: Iterable[EnvbuildError], site: Site, reporter: Reporter) -> None:
    """Report the lines of a site file that would supply what is missing, if they are more than the hints contain."""
    if lines := site_lines(errors, site):
        file = "site.yaml" if site.where else "a new site.yaml"
        head = f"{image}: these lines of {file} would supply the rest; replace the places with yours:"
        reporter.info("\n".join([head, *lines]))
