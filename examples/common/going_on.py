"""Says which commands of a program come next."""

import sys
from pathlib import Path


def print_next(*commands: str):
    """Prints commands of this program to go on with."""
    print("\nTo go on:")
    for command in commands:
        print(f"  {sys.executable} {sys.argv[0]} {command}")


def print_rest(output: Path):
    """Prints how to go on after an interruption."""
    if (output / "translator" / "translator.json").exists():
        print(f"{output / 'translator'} holds a trained model.")
        print_next("export", "serve", "query YOUR WORDS")
    else:
        print("Nothing was saved. A model that is trained in less time:")
        print_next("demo --preset small", "demo --epochs 1")
