"""Who may see what: accounts, their roles and log-in links, and the audit log."""
