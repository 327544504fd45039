"""
Title: A model in the browser
Date created: 2026/11/28
Description: A static page that runs an ONNX export, without a server.

The browser itself runs the model and its search: a server only hosts files.
This program makes a folder of the page and the ONNX export of a translator that
another program saved. ONNX Runtime for the web comes by npm:

    python examples/pronounce.py train
    python examples/browser.py build/pronounce/translator
    npm install --prefix build/browser onnxruntime-web
    python -m http.server 8000 --directory build/browser

The page splits texts into characters or words. It needs keras-attn with its
extra `onnx`. What all examples share is in `common/`.
"""

import argparse
import shutil
import sys
from pathlib import Path

import common  # before Keras, as it silences TensorFlow's notes

"""
## The folder

`model.js` asks the model, `text.js` splits and joins texts as the JSON files of
the export say. They are the whole client, to be read and taken.
"""

PAGE = Path(__file__).parent / "common" / "browser"


def make(translator, folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    for file in PAGE.iterdir():
        shutil.copy(file, folder)
    model = folder / "model"
    versions = folder / "versions"
    shutil.rmtree(versions, ignore_errors=True)  # of a run that was stopped
    version = translator.export(versions, format="onnx")
    shutil.rmtree(model, ignore_errors=True)
    version.rename(model)
    versions.rmdir()


def main(arguments: list[str] | None = None):
    parser = argparse.ArgumentParser(
        description="Makes a page that runs a translator in the browser."
    )
    parser.add_argument(
        "translator", type=Path, help="folder of a saved translator"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/browser"),
        metavar="DIR",
        help="folder of the page (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    translator = common.command_line.load(options.translator)
    make(translator, options.output)
    print(f"The page is in {options.output}. To see it:")
    print(f"  npm install --prefix {options.output} onnxruntime-web")
    print(f"  {sys.executable} -m http.server 8000 -d {options.output}")


if __name__ == "__main__":
    main()
