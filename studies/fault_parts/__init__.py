"""Parts of the studies that break a site: its servers, the deck of faults, and what was heard."""
