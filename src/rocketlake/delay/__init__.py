"""Delayed delivery: by level, or at an arbitrary time.

1. A put hook redirects a delayed message to an internal topic, and stores its real topic and queue
   in its properties (`hook`).
2. A service reads it there when it is due and puts it into its real queue: `level_scheduler` for
   delay levels, `timer_store` for times. A message is delivered once, unless there was a crash.
3. Progress is written to the disk only after the delivered copies: a crash may deliver a message
   twice, but never loses one.
"""
