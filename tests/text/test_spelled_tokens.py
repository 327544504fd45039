"""Special tokens that a text may spell."""

import pytest

import keras_attn

TOKENS = ["<pad>", "</s>", "<unk>", "<mask>", "<x>", *"abc", "Ġ"]
IDS = {x: i for i, x in enumerate(TOKENS)}


def text(*spelled):
    special = keras_attn.SpecialTokens(
        pad=0, start=(0,), end=1, unknown=2, spelled_tokens=spelled
    )
    return keras_attn.Text(
        split=keras_attn.BytePair(IDS, [], special), normalization=None
    )


@pytest.mark.full
def test_a_text_may_spell_some_tokens():
    given = text(IDS["<mask>"], IDS["</s>"])
    (found,) = given.source_ids(["a<mask>b</s><mask>c"]).numpy().tolist()
    assert found == [5, 3, 6, 1, 3, 7, 1]
    (back,) = given.strings([found]).numpy()
    assert back == b"a<mask>b<mask>c"


@pytest.mark.full
def test_other_tokens_are_split_like_any_text():
    given = text(IDS["<mask>"])
    (found,) = given.source_ids(["<x></s>"]).numpy().tolist()
    assert found == [2] * 7 + [1]


@pytest.mark.full
def test_a_search_may_write_what_a_text_may_spell():
    assert IDS["<mask>"] not in text(IDS["<mask>"]).special.never_written


@pytest.mark.parametrize("spelled", [0, -1, 1.5], ids=str)
def test_padding_and_what_is_no_id_are_refused(spelled):
    with pytest.raises(ValueError, match="spelled_tokens"):
        text(spelled)


@pytest.mark.full
def test_a_saved_text_has_them(tmp_path):
    given = text(IDS["<mask>"])
    given.save(tmp_path / "text")
    again = keras_attn.Text.load(tmp_path / "text")
    assert again.special == given.special
    line = ["a<mask>"]
    found = again.source_ids(line).numpy().tolist()
    assert found == given.source_ids(line).numpy().tolist()


def test_a_number_may_contain_the_digits_of_a_prompt_token():
    special = keras_attn.SpecialTokens(
        0, (3,), 1, 2, prompt_tokens=(5,), spelled_tokens=(3,)
    )
    text = keras_attn.Text(split=keras_attn.IntegerIds(60, special))
    ids = text.uncut_ids(["15 25 5 57 53 3 1", "105 -5"]).to_list()
    assert ids == [[15, 25, 5, 57, 53, 3, 2], [2, 2]]
    assert text.pieces(["15 5"]).to_list() == [[b"15", b"5"]]
