"""``python -m shardscope`` is the command line."""
from ._program import main

main()
