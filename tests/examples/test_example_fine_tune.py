"""The example that fine-tunes a model of KerasHub, as a user would run it."""

import pytest
from support.programs import PROGRAM
from support.programs import run

FINE_TUNE = PROGRAM.with_name("fine_tune.py")
TOY = "--epochs", "1", "--sentences", "400"
SMALL = "--size", "400", "--units", "16", "--depth", "1"


@pytest.mark.full
def test_a_model_is_made_tuned_served_and_tuned_again(tmp_path):
    def tuned(folder, *options):
        given = *TOY, *options, "--output", folder
        printed = run(*given, program=FINE_TUNE, folder=tmp_path).stdout
        output = tmp_path / folder
        assert (output / "models/translate/1/saved_model.pb").exists()
        assert (output / "attention.png").read_bytes()[:4] == b"\x89PNG"
        server = printed.split("The server says:")[1]
        assert "serving model translate version 1" in server
        assert "\n  -> " in server
        return output

    first = tuned("first", *SMALL)
    tuned("second", "--preset", first / "fine_tuned")
