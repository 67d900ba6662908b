"""Where records come from: files, streams of a broker, and the answers of a database.

A source delivers the values as it found them and judges none of them; `foldaway.records` does that. No
record's value is ever part of a message.
"""
