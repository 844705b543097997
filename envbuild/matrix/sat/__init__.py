"""Many-valued satisfiability: the search for an assignment, and the smallest contradictory part. No facts here."""
