"""
Title: A page that asks a served model
Date created: 2026/11/23
Description: Type a text; see its output, the alternatives and the attention.

The program asks TensorFlow Serving, or the development server, over REST, and
gives a browser the page. The server has what the other examples export:

    python -m keras_attn_serving --model_base_path=models/pronounce \\
        --model_name=pronounce --rest_api_port=8501
    python examples/live.py pronounce

It needs keras-attn and keras-attn-serving.
"""

import argparse
import urllib.parse
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from types import SimpleNamespace

from keras_attn_serving import RestClient
from keras_attn_serving import RowError
from keras_attn_serving import ServingError

import keras_attn

"""
## What the server answers

The signature `align` has the best output with its attention, `nbest` the
others with their scores. An export with the signature `terms` also takes
phrases that the output must have.
"""


def ask(client: RestClient, text: str, terms: list[str]):
    """Returns the output for a text, with its attention and alternatives."""
    if terms:
        found = client.translate([text], terms=[terms])
        rows, columns = found["length"][0], found["source_length"][0]
        best = SimpleNamespace(
            text=found["text"][0],
            score=float(found["score"][0]),
            tokens=found["tokens"][0][:rows],
            source_tokens=found["source_tokens"][0][:columns],
            alignment=found["alignments"][0][:rows, :columns],
            missing=found["missing"][0].split("\n"),
        )
    else:
        (best,) = client.align([text])
        found = client.predict([text], "nbest")
        best = SimpleNamespace(**best._asdict(), missing=[])
    pairs = zip(found["texts"][0], found["scores"][0], strict=True)
    best.alternatives = [
        SimpleNamespace(text=text, score=score)
        for text, score in list(pairs)[1:]
        if score > float("-inf")  # there may be fewer than were asked for
    ]
    return best


"""
## The page

A text comes as `/?text=...`, so that a page can be kept and sent to others.
What the server refuses becomes a message above the field. The field for terms
is there if the export has the signature.
"""


def page(client: RestClient, title: str, text: str, terms: str) -> str:
    """Returns the page for a text, or without one the empty field."""
    results, message, known = [], None, False
    phrases = [x.strip() for x in terms.split(";") if x.strip()]
    try:
        known = "terms" in client.metadata()
        if text.strip():
            results = [ask(client, text, phrases)]
            missing = ", ".join(filter(None, results[0].missing))
            message = f"Without: {missing}" if missing else None
    except RowError as error:
        message = error.errors[0]
    except (ServingError, ValueError) as error:
        message = str(error)
    return keras_attn.attention_html(
        results,
        title=title,
        ask=text,
        terms=terms if known else None,
        message=message,
    )


def handler(client: RestClient, title: str):
    """Returns the class that answers browsers."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urllib.parse.urlsplit(self.path)
            if address.path != "/":
                self.send_error(404)
                return
            query = urllib.parse.parse_qs(address.query)
            (text,) = query.get("text", [""])[:1]
            (terms,) = query.get("terms", [""])[:1]
            body = page(client, title, text, terms).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    return Page


"""
## The program
"""


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description="Shows a served model on a page."
    )
    parser.add_argument("model", help="name of the model on the server")
    parser.add_argument(
        "--server",
        default="http://localhost:8501",
        help="the server's address for REST (default: %(default)s)",
    )
    parser.add_argument(
        "--port", type=int, default=8000, help="port of the page, 0 for any"
    )
    options = parser.parse_args(arguments)
    client = RestClient(options.server, options.model)
    made = handler(client, options.model)
    with ThreadingHTTPServer(("localhost", options.port), made) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
