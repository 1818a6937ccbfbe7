from rocketlake.format._kernel.pure import NAME as NAME
from rocketlake.format._kernel.pure import append as append
from rocketlake.format._kernel.pure import append_batch as append_batch
from rocketlake.format._kernel.pure import crc31 as crc31
from rocketlake.format._kernel.pure import decode_properties as decode_properties
from rocketlake.format._kernel.pure import encode as encode
from rocketlake.format._kernel.pure import encode_batch as encode_batch
from rocketlake.format._kernel.pure import encode_properties as encode_properties
from rocketlake.format._kernel.pure import filter_units as filter_units
from rocketlake.format._kernel.pure import index_lookup as index_lookup
from rocketlake.format._kernel.pure import index_put as index_put
from rocketlake.format._kernel.pure import intern_topics as intern_topics
from rocketlake.format._kernel.pure import java_hash as java_hash
from rocketlake.format._kernel.pure import json_lines as json_lines
from rocketlake.format._kernel.pure import key_hash as key_hash
from rocketlake.format._kernel.pure import message_properties as message_properties
from rocketlake.format._kernel.pure import scan as scan
from rocketlake.format._kernel.pure import scan_at as scan_at
from rocketlake.format._kernel.pure import seal as seal

LAYOUT: dict[str, int]
