"""What happened in a trial, for those who do not trust whoever ran it: ledger, certificate, and their checks."""
