"""A step of a search stays shallow: few frames between a call and a score."""

import pytest
from support.frames import frames_of_a_greedy_step


@pytest.mark.full
def test_a_score_is_few_frames_from_the_call_of_a_translator():
    frames = frames_of_a_greedy_step()
    names = [f"{frame.filename}: {frame.name}" for frame in frames]
    files = {frame.filename for frame in frames}
    # And the score's own, a frame in one more file. These are today's numbers;
    # the aim is 14 frames in 8 files.
    assert len(frames) + 1 <= 19, names
    assert len(files) + 1 <= 11, sorted(files)
