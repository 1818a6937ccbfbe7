"""Delayed delivery: by level, or at an arbitrary time.

1. A put hook sends a message that is to wait to a topic of the store's own, and keeps in its
   properties where it belongs (`hook`).
2. A service finds it there when its time has come and puts it where it belongs: `level_scheduler`
   for delay levels, `timer_store` for times. Nobody is told of it twice, unless there was a crash.
3. What was delivered is remembered on the disk only when the copies are there: a crash may deliver
   a message twice, never not at all.
"""
