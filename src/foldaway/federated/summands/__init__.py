"""Mode shares: what two servers add up, of which neither can read anything without the other."""
