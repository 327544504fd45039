"""
Title: A page that asks a served model
Date created: 2026/11/23
Description: Type a text; see its output, the alternatives and the attention.

This program serves a page, and queries TensorFlow Serving or the development
server over REST. That server hosts an export of another example:

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
others with their scores. The signature `terms` has both, for phrases that the
output must have.
"""


def ask(client: RestClient, text: str, terms: list[str]):
    """Returns the output for a text, with its attention and alternatives."""
    asked = {"terms": [terms]} if terms else {}
    (best,) = client.align([text], **asked)
    if terms:
        found = client.translate([text], **asked)
    else:
        found = client.predict([text], "nbest")
    pairs = zip(found["texts"][0], found["scores"][0], strict=True)
    others = [SimpleNamespace(text=x, score=y) for x, y in list(pairs)[1:]]
    alternatives = [x for x in others if x.score > float("-inf")]  # those found
    return SimpleNamespace(**best._asdict(), alternatives=alternatives)


"""
## The page

A text comes as `/?text=...`, so that a page can be kept and sent to others.
What the server refuses becomes a message above the field.
"""


def page(client: RestClient, title: str, text: str, terms: str) -> str:
    """Returns the page for a text, or without one the empty fields."""
    results, message = [], None
    phrases = [x for x in terms.split(";") if x.strip()]
    try:
        if text.strip():
            results = [ask(client, text, phrases)]
            missing = ", ".join(results[0].missing)
            message = f"Without: {missing}" if missing else None
    except RowError as error:
        message = error.errors[0]
    except (ServingError, ValueError) as error:
        message = str(error)
    shown = {"title": title, "ask": text, "terms": terms, "message": message}
    return keras_attn.attention_html(results, **shown)


def handler(client: RestClient, title: str):
    """Returns the class that answers browsers."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            address = urllib.parse.urlsplit(self.path)
            if address.path != "/":
                self.send_error(404)
                return
            query = urllib.parse.parse_qs(address.query)
            fields = (query.get(x, [""])[0] for x in ("text", "terms"))
            body = page(client, title, *fields).encode()
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
    parser = argparse.ArgumentParser(description="Shows a served model.")
    add = parser.add_argument
    add("model", help="name of the model on the server")
    add("--server", default="http://localhost:8501", help="address for REST")
    add("--port", type=int, default=8000, help="port of the page, 0 for any")
    options = parser.parse_args(arguments)
    client = RestClient(options.server, options.model)
    made = handler(client, options.model)
    with ThreadingHTTPServer(("localhost", options.port), made) as server:
        print(f"http://localhost:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
