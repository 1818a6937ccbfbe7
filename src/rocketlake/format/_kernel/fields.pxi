# The fields of a message, read where its type keeps them; included by native.pyx. `pure` has no
# twin of this: it is the same as asking for the attributes, only faster.

from types import MemberDescriptorType as _MemberDescriptorType

cdef extern from "Python.h":
    ctypedef struct PyObject:
        pass
    ctypedef struct RLMember "PyMemberDef":
        int type
        Py_ssize_t offset
    ctypedef struct RLDescriptor "PyMemberDescrObject":
        RLMember* d_member

cdef extern from "structmember.h":
    int T_OBJECT_EX

cdef enum:
    TOPIC, BODY, TAGS, KEYS, PROPERTIES, FLAG, DELAY_LEVEL, DELIVER_AT, WAIT, FIELD_COUNT

cdef tuple _FIELD_NAMES = (
    "topic", "body", "tags", "keys", "properties", "flag", "delay_level", "deliver_at", "wait")
cdef object _known_type = None
cdef Py_ssize_t _field_at[FIELD_COUNT]


cdef bint find_slots(object kind, tuple names, Py_ssize_t* places) except -1:
    """Find where a type keeps fields; False if it does not keep all in slots of its own."""
    cdef RLMember* member
    cdef int i
    own = kind.__dict__
    for i in range(len(names)):
        descriptor = own.get(names[i])
        if type(descriptor) is not _MemberDescriptorType or descriptor.__objclass__ is not kind:
            return False
        member = (<RLDescriptor*>descriptor).d_member
        if member.type != T_OBJECT_EX:
            return False
        places[i] = member.offset
    return True


cdef bint learn_type(object kind) except -1:
    """Remember where a type keeps its fields, if it keeps all of them in slots of its own."""
    global _known_type
    if not find_slots(kind, _FIELD_NAMES, _field_at):
        return False
    _known_type = kind
    return True


cdef inline object field_of(object message, int which):
    """Return a field of a message."""
    cdef PyObject* value
    if type(message) is _known_type:
        value = (<PyObject**>((<char*><void*>message) + _field_at[which]))[0]
        if value != NULL:
            return <object>value
    return getattr(message, <str>_FIELD_NAMES[which])
