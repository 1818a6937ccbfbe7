"""A plug-in that changes every message it sees."""

from msgspec.structs import replace

from rocketlake import PluginMessageStore, PutReceipt
from rocketlake.store.api import AppendRequest


class Upper(PluginMessageStore):
    def put(self, request: AppendRequest) -> PutReceipt:
        properties = {**request.message.properties, "SEEN": "1"}
        message = replace(request.message, properties=properties)
        return super().put(replace(request, message=message))
