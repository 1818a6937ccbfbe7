"""Requests and results: statuses as the reference spells them, ids of receipts."""

import inspect
import pickle

import msgspec
import pytest

from rocketlake.model.endpoint import Endpoint
from rocketlake.model.message import Message
from rocketlake.store import ports
from rocketlake.store.api import (
    AppendRequest,
    CorruptUnit,
    GetRequest,
    GetResult,
    GetStatus,
    PutReceipt,
    PutStatus,
    QueryResult,
)

HOST = Endpoint.parse("10.0.0.2:10911").encode()

# Members of PutMessageStatus and GetMessageStatus in 5.3.3, in its order.
PUT = """
    PUT_OK FLUSH_DISK_TIMEOUT FLUSH_SLAVE_TIMEOUT SLAVE_NOT_AVAILABLE SERVICE_NOT_AVAILABLE
    CREATE_MAPPED_FILE_FAILED MESSAGE_ILLEGAL PROPERTIES_SIZE_EXCEEDED OS_PAGE_CACHE_BUSY
    UNKNOWN_ERROR IN_SYNC_REPLICAS_NOT_ENOUGH PUT_TO_REMOTE_BROKER_FAIL
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED WHEEL_TIMER_FLOW_CONTROL WHEEL_TIMER_MSG_ILLEGAL
    WHEEL_TIMER_NOT_ENABLE
"""
GET = """
    FOUND NO_MATCHED_MESSAGE MESSAGE_WAS_REMOVING OFFSET_FOUND_NULL OFFSET_OVERFLOW_BADLY
    OFFSET_OVERFLOW_ONE OFFSET_TOO_SMALL NO_MATCHED_LOGIC_QUEUE NO_MESSAGE_IN_QUEUE OFFSET_RESET
"""


@pytest.mark.parametrize(("kind", "names"), [(PutStatus, PUT), (GetStatus, GET)])
def test_statuses_are_those_of_the_reference(kind, names):
    assert [status.name for status in kind] == names.split()
    assert all(status == status.name and str(status) == status.name for status in kind)


def receipt(**changes: object) -> PutReceipt:
    values = {
        "status": PutStatus.PUT_OK,
        "queue_offset": 7,
        "physical_offset": 4096,
        "store_timestamp": 1,
        "size": 145,
        "count": 1,
        "store_host": HOST,
    }
    return PutReceipt(**{**values, **changes})


def test_receipt_id_is_host_and_offset():
    assert receipt().msg_id == "0A00000200002A9F0000000000001000"


def test_receipt_id_of_ipv6_host():
    host = Endpoint.parse("[2001:db8::1]:10911").encode()
    assert receipt(store_host=host).msg_id == (
        "20010DB8000000000000000000000001" + "00002A9F" + "0000000000001000"
    )


def test_receipt_id_of_a_batch_has_all_records():
    batch = receipt(count=2, offsets=(4096, 4241))
    assert batch.msg_id == "0A00000200002A9F0000000000001000,0A00000200002A9F0000000000001091"


@pytest.mark.parametrize(
    "status",
    [PutStatus.PUT_OK, PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.FLUSH_SLAVE_TIMEOUT],
)
def test_receipt_of_a_stored_record_is_ok_whatever_came_after(status):
    assert receipt(status=status).is_ok


def test_receipt_of_a_record_at_the_begin_of_the_log_is_ok():
    assert receipt(physical_offset=0).is_ok
    assert receipt(physical_offset=0).msg_id == "0A00000200002A9F0000000000000000"


def test_receipt_of_a_refusal_has_no_place():
    refused = PutReceipt(status=PutStatus.MESSAGE_ILLEGAL, reason="topic too long")
    assert not refused.is_ok
    assert refused.msg_id == ""
    assert (refused.queue_offset, refused.physical_offset, refused.store_timestamp) == (-1, -1, -1)
    assert (refused.size, refused.count, refused.offsets) == (0, 0, ())


def test_results_are_values():
    message = Message(topic="t", body=b"")
    request = AppendRequest(
        message=message, queue_id=0, born_timestamp=1, born_host=Endpoint.parse("1.2.3.4:5")
    )
    unit = CorruptUnit(path="f", position=8, reason="torn", queue_offset=3)
    result = GetResult(status=GetStatus.FOUND, corrupt=(unit,))
    for value in (receipt(), GetRequest(topic="t", queue_id=0, offset=0), result, QueryResult()):
        assert pickle.loads(pickle.dumps(value)) == value
        with pytest.raises(AttributeError):
            setattr(value, value.__struct_fields__[0], None)
    changed = msgspec.structs.replace(request, message=msgspec.structs.replace(message, topic="u"))
    assert (request.message.topic, changed.message.topic) == ("t", "u")


def test_get_result_is_found_by_status_alone():
    assert GetResult(status=GetStatus.FOUND).is_found
    assert not GetResult(status=GetStatus.OFFSET_FOUND_NULL).is_found
    assert GetResult(status=GetStatus.OFFSET_TOO_SMALL, next_offset=5).next_offset == 5


def test_corrupt_unit_says_where_and_why():
    unit = CorruptUnit(path="f", position=8, reason="torn", queue_offset=3)
    assert str(unit) == "f at 8: torn (queue offset 3)"


def test_ports_are_protocols_with_documented_methods():
    found = [
        value
        for value in vars(ports).values()
        if inspect.isclass(value) and getattr(value, "_is_protocol", False)
    ]
    named = {port.__name__ for port in found} - {"Protocol"}
    assert named == {
        "Replicator",
        "AppendListener",
        "RoleListener",
        "ArrivalListener",
        "TopicCatalog",
        "PutHook",
        "CustomDispatcher",
    }
