"""A share of the training episodes is read; the held-out episodes stay the same."""

import pytest

from tests.training.runs import bc, begin
from tidelog import ConfigError, fit
from tidelog.data.read import read_log
from tidelog.recommend.held_out import check_list_options
from tidelog.training.fit import EpisodeSplit


@pytest.mark.parametrize("held_out", [0.0, 0.2])
def test_less_data_are_a_part_of_more_and_the_held_out_part_stays(held_out, origin, saved):
    splits = {share: EpisodeSplit(origin, held_out, 0, 1.0, share) for share in (0.25, 0.5, 1.0)}
    whole = EpisodeSplit(origin, held_out, 0)
    count = len(origin.episode_ids) - len(whole.held_out_ids)
    read = {share: set(split.training_log.episode_ids.tolist()) for share, split in splits.items()}
    assert [len(one) for one in read.values()] == [round(0.25 * count), round(0.5 * count), count]
    assert read[0.25] < read[0.5] < read[1.0]
    assert all(split.held_out_ids == whole.held_out_ids for split in splits.values())
    assert not read[1.0] & set(whole.held_out_ids)
    run = begin(bc(), read_log(saved, memory_map=True), held_out=held_out, data_share=0.5)
    assert run.record.options.data_share == 0.5
    assert run.record.sketches["learnt_from"]["episodes"] == len(read[0.5])
    assert begin(bc(), origin, held_out=held_out, data_share=0.5).record.sketches == run.record.sketches


def test_shares_that_are_none_are_refused(origin):
    for share in (0.0, 1.5, float("nan")):
        with pytest.raises(ConfigError, match="data_share"):
            fit(bc(), origin, 2, data_share=share)
    with pytest.raises(ConfigError, match=r"data_share = 0\.5: interactions are split by time"):
        check_list_options({"data_share": 0.5}, {})
