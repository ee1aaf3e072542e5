"""Run the command: ``python -m tools.gen_synthetic OUT --messages 12000 --nbytes 129M``."""

import sys

try:
    from .command import main
except ModuleNotFoundError as error:
    if error.name != "click":
        raise
    print("the command needs click: python -m pip install click rich", file=sys.stderr)
    raise SystemExit(2) from None

if __name__ == "__main__":
    main(prog_name="python -m tools.gen_synthetic")
