# StoredMessage, and rows -> messages; included by native.pyx, the twin of pure/message.py.

cimport cython

from rocketlake.format._kernel.rebuilding import rebuild_message as _rebuild_message
from rocketlake.model.compression import inflate as _inflate
from rocketlake.model.endpoint import Endpoint as _Endpoint

cdef tuple FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp",
    "born_timestamp", "born_host", "store_host", "flag", "sys_flag", "body_crc",
    "reconsume_times", "prepared_transaction_offset", "properties", "raw_properties",
    "stored_body", "version")

cdef enum:
    BODY_COMPRESSED = 1


cdef struct Host:
    uint8_t size
    uint8_t data[HOST_V6_SIZE]


@cython.final
@cython.no_gc  # a property map holds texts and nothing that could hold the message
@cython.freelist(256)
cdef class StoredMessage:
    """A message as a commit log holds it."""

    cdef readonly str topic
    cdef readonly bytes raw_properties
    cdef readonly bytes stored_body
    cdef dict _properties
    cdef bytes _body
    cdef readonly int64_t queue_offset
    cdef readonly int64_t physical_offset
    cdef readonly int64_t store_timestamp
    cdef readonly int64_t born_timestamp
    cdef readonly int64_t prepared_transaction_offset
    cdef readonly int32_t queue_id
    cdef readonly int32_t store_size
    cdef readonly int32_t flag
    cdef readonly int32_t sys_flag
    cdef readonly int32_t body_crc
    cdef readonly int32_t reconsume_times
    cdef readonly int version
    cdef Host _born_host
    cdef Host _store_host

    def __init__(self, *, topic, queue_id, queue_offset, physical_offset, store_size,
                 store_timestamp, born_timestamp, born_host, store_host, flag, sys_flag, body_crc,
                 reconsume_times, prepared_transaction_offset, properties=None, raw_properties,
                 stored_body, version=1):
        """Make a message; without `properties` they are those of the property string."""
        host_of(born_host, &self._born_host)
        host_of(store_host, &self._store_host)
        if version != 1 and version != 2:
            raise ValueError(f"a record has version 1 or 2, not {version}")
        for value, kind in ((topic, str), (raw_properties, bytes), (stored_body, bytes)):
            if type(value) is not kind:
                raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")
        self.topic = topic
        self.queue_id = to_i32(queue_id)
        self.queue_offset = to_i64(queue_offset)
        self.physical_offset = to_i64(physical_offset)
        self.store_size = to_i32(store_size)
        self.store_timestamp = to_i64(store_timestamp)
        self.born_timestamp = to_i64(born_timestamp)
        self.flag = to_i32(flag)
        self.sys_flag = to_i32(sys_flag)
        self.body_crc = to_i32(body_crc)
        self.reconsume_times = to_i32(reconsume_times)
        self.prepared_transaction_offset = to_i64(prepared_transaction_offset)
        self._properties = None if properties is None else dict(properties)
        self.raw_properties = raw_properties
        self.stored_body = stored_body
        self.version = version
        self._body = None

    @property
    def born_host(self):
        """Who made the message."""
        return _Endpoint.decode(host_bytes(&self._born_host))

    @property
    def store_host(self):
        """Who stored it."""
        return _Endpoint.decode(host_bytes(&self._store_host))

    @property
    def properties(self):
        """The map of the property string."""
        if self._properties is None:
            self._properties = decode_properties(self.raw_properties)
        return self._properties

    @property
    def body(self):
        """The plain body."""
        if not self.sys_flag & BODY_COMPRESSED:
            return self.stored_body
        if self._body is None:
            self._body = _inflate(self.stored_body, self.sys_flag)
        return self._body

    @property
    def msg_id(self):
        """The id a broker gives for this record."""
        cdef uint8_t offset[8]
        rl_store64(offset, self.physical_offset)
        place = host_bytes(&self._store_host) + PyBytes_FromStringAndSize(<char*>offset, 8)
        return place.hex().upper()

    @property
    def tags(self):
        """The tag, if there is one."""
        return self.find("TAGS", b"TAGS\x01", 5)

    @property
    def keys(self):
        """The keys of the message, without the unique key."""
        cdef const char* value
        cdef Py_ssize_t size
        if self._properties is not None:
            text = self._properties.get("KEYS")
            return [key for key in text.split(" ") if key] if text else []
        if not find_value(self.raw_properties, b"KEYS\x01", 5, &value, &size):
            return []
        return keys_of(value, value + size)

    @property
    def unique_key(self):
        """The id the producer gave, if it gave one."""
        return self.find("UNIQ_KEY", b"UNIQ_KEY\x01", 9)

    cdef object find(self, str name, const char* begin, Py_ssize_t begin_size):
        cdef const char* value
        cdef Py_ssize_t size
        if self._properties is not None:
            return self._properties.get(name)
        if not find_value(self.raw_properties, begin, begin_size, &value, &size):
            return None
        return PyUnicode_DecodeUTF8(value, size, "replace")

    def __eq__(self, other):
        if type(other) is not StoredMessage:
            return NotImplemented
        return is_same(self, other)

    def __hash__(self):
        return hash((self.topic, self.physical_offset, self.queue_offset, self.store_timestamp))

    def __repr__(self):
        shown = ", ".join([f"{name}={getattr(self, name)!r}" for name in FIELDS])
        return f"StoredMessage({shown})"

    def __reduce__(self):
        values = {name: getattr(self, name) for name in FIELDS if name != "properties"}
        values["properties"] = self._properties
        return _rebuild_message, (values,)


cdef int host_of(object endpoint, Host* host) except -1:
    cdef bytes data = endpoint.encode()
    if len(data) != HOST_V4_SIZE and len(data) != HOST_V6_SIZE:
        raise ValueError(f"a host has 8 or 20 bytes, not {len(data)}")
    host.size = <uint8_t>PyBytes_GET_SIZE(data)
    memcpy(host.data, PyBytes_AS_STRING(data), host.size)
    return 0


cdef bytes host_bytes(const Host* host):
    return PyBytes_FromStringAndSize(<const char*>host.data, host.size)


cdef bint find_value(bytes raw, const char* begin, Py_ssize_t begin_size, const char** value,
                     Py_ssize_t* size) noexcept:
    """Find the last property that begins so, with its name and the separator behind it."""
    cdef const char* p
    cdef const char* end
    cdef const char* stop
    cdef bint is_found = False
    value[0] = NULL
    size[0] = 0
    if raw is None:  # a message that was never initialised
        return False
    p = PyBytes_AS_STRING(raw)
    end = p + PyBytes_GET_SIZE(raw)
    while p < end:
        stop = <const char*>memchr(p, PROPERTY_END, end - p)
        if stop == NULL:
            stop = end
        if stop - p > begin_size and p[0] == begin[0] and memcmp(p, begin, begin_size) == 0:
            value[0] = p + begin_size
            size[0] = stop - p - begin_size
            is_found = True
        p = stop + 1
    return is_found


cdef list keys_of(const char* p, const char* end):
    """Cut at blanks, as can be done before decoding; empty ones are left out."""
    cdef const char* stop
    cdef list keys = []
    while p < end:
        stop = <const char*>memchr(p, 32, end - p)
        if stop == NULL:
            stop = end
        if stop > p:
            keys.append(PyUnicode_DecodeUTF8(p, stop - p, "replace"))
        p = stop + 1
    return keys


cdef bint is_same_host(const Host* a, const Host* b) noexcept:
    return a.size == b.size and memcmp(a.data, b.data, a.size) == 0


cdef bint is_same(StoredMessage a, StoredMessage b) except -1:
    if not (a.physical_offset == b.physical_offset and a.queue_offset == b.queue_offset
            and a.store_timestamp == b.store_timestamp and a.born_timestamp == b.born_timestamp
            and a.prepared_transaction_offset == b.prepared_transaction_offset
            and a.queue_id == b.queue_id and a.store_size == b.store_size and a.flag == b.flag
            and a.sys_flag == b.sys_flag and a.body_crc == b.body_crc
            and a.reconsume_times == b.reconsume_times and a.version == b.version):
        return False
    if not (is_same_host(&a._born_host, &b._born_host)
            and is_same_host(&a._store_host, &b._store_host)):
        return False
    if not (a.topic == b.topic and a.raw_properties == b.raw_properties
            and a.stored_body == b.stored_body):
        return False
    if a._properties is None and b._properties is None:
        return True
    return a.properties == b.properties


# --- rows -> messages --------------------------------------------------------------------------

cdef StoredMessage make_message(const uint8_t* data, const Row* row, str topic):
    """Make a message from a row whose parts lie in the data."""
    cdef StoredMessage message = StoredMessage.__new__(StoredMessage)
    cdef const uint8_t* host = data + row.position + RECORD_BORN_HOST_AT
    message.topic = topic
    message.raw_properties = PyBytes_FromStringAndSize(
        <const char*>data + row.properties_position, row.properties_size)
    message.stored_body = PyBytes_FromStringAndSize(
        <const char*>data + row.body_position, row.body_size)
    message.queue_offset = row.queue_offset
    message.physical_offset = row.physical_offset
    message.store_timestamp = row.store_timestamp
    message.born_timestamp = row.born_timestamp
    message.prepared_transaction_offset = row.prepared_transaction_offset
    message.queue_id = row.queue_id
    message.store_size = row.size
    message.flag = row.flag
    message.sys_flag = row.sys_flag
    message.body_crc = row.body_crc
    message.reconsume_times = row.reconsume_times
    message.version = 1 if row.topic_position - row.body_position - row.body_size == 1 else 2
    message._born_host.size = born_size_of(row.sys_flag)
    memcpy(message._born_host.data, host, message._born_host.size)
    host += message._born_host.size + 8
    message._store_host.size = store_size_of(row.sys_flag)
    memcpy(message._store_host.data, host, message._store_host.size)
    return message


cdef int add_messages(list messages, const uint8_t* data, const Row* rows, int64_t count) except -1:
    """Append messages of rows whose parts lie in the data; a run of one topic shares its text."""
    cdef int64_t i
    cdef const Row* row
    cdef const uint8_t* last = NULL
    cdef int last_size = -1
    cdef str topic = None
    for i in range(count):
        row = rows + i
        if row.topic_size != last_size or memcmp(data + row.topic_position, last, last_size) != 0:
            last = data + row.topic_position
            last_size = row.topic_size
            topic = PyUnicode_DecodeUTF8(<const char*>last, last_size, "replace")
        messages.append(make_message(data, row, topic))
    return 0


def make_messages(const uint8_t[::1] buffer not None, const uint8_t[::1] rows not None):
    """Return a message for each row."""
    cdef int64_t length = buffer.shape[0]
    cdef int64_t i, count = rows.shape[0] // <int64_t>sizeof(Row)
    cdef const uint8_t* data = &buffer[0] if length else NULL
    cdef const Row* table = <const Row*>&rows[0] if rows.shape[0] else NULL
    cdef list messages = []
    for i in range(count):
        if not row_inside(table + i, length):
            raise ValueError(f"row {i} lies outside the buffer")
    add_messages(messages, data, table, count)
    return messages
