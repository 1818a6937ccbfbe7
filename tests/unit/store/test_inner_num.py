"""Inner batches whose number of messages is one, or is not."""

import pytest

from rocketlake.model.flags import INNER_BATCH, NEED_UNWRAP
from rocketlake.store.api import PutStatus
from support.engine import open_engine, request


# What RocketMQ 5.5.0 and 5.3.3 say: the number of messages, or an exception.
@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("32767", 32767), ("+3", 3), ("0", 1), ("-5", 1), ("-32768", 1), ("٣", 3)),
        *((text, None) for text in ("32768", "40000", "-32769", " 3", "3_0", "abc", "")),
        ("9" * 5000, None),
    ],
)
def test_number_that_does_not_fit_is_illegal(tmp_path, text, count):
    with open_engine(tmp_path, batch_topics=["B"]) as store:
        bits = INNER_BATCH | NEED_UNWRAP
        store.put(request("B", properties={"INNER_NUM": "2"}, sys_flag=bits))
        end = store.log_bounds()[1]
        receipt = store.put(request("B", properties={"INNER_NUM": text}, sys_flag=bits))
        if count is None:
            assert receipt.status is PutStatus.MESSAGE_ILLEGAL
            assert "no number of 16 bits" in receipt.reason
            assert store.log_bounds()[1] == end
        assert store.put(request("B")).queue_offset == 2 + (count or 0)
