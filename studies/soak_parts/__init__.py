"""Parts of the soak of a site: its faults, what is sampled, and the verdict."""
