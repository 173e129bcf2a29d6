"""Events: rules, state machine, record and message; scores in, changes out."""
