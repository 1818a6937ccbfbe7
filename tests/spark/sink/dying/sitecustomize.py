"""Imported by every Python of a run that is to die: kills it at a failpoint of the sink.

ROCKETLAKE_SINK_KILL=point:passes:process-group
"""

import os
import signal

WANTED = os.environ.get("ROCKETLAKE_SINK_KILL", "")

if WANTED.count(":") == 2:  # the driver adds its group for those it starts
    from rocketlake import failpoint

    POINT, PASSES, GROUP = WANTED.split(":")

    def die() -> None:
        os.killpg(int(GROUP), signal.SIGKILL)  # the driver and its Java
        failpoint.kill()

    failpoint.switch_on(POINT, die, passes=int(PASSES))
