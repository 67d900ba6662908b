"""What the command line can do: one file for each family of commands.

So that --help is quick, what takes long to load comes through the front door, ``foldaway`` itself, which loads it on
first use, or is imported where it is needed.
"""
