"""Studies: long simulations that answer one question each, with the answer kept under docs/validation/.

python -m studies                           # what there is
python -m studies bootstrap_start           # run one and print its table
python -m studies bootstrap_start --write   # and keep it as docs/validation/bootstrap_start.md
"""
