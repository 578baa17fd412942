"""The fleet as every face shows it: its nodes, how it all stands, who is in doubt, what is wrong."""
