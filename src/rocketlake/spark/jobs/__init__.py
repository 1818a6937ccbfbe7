"""Jobs over whole stores: each a plan that can be shown, and a run that reports."""

from rocketlake.spark.jobs.archive.archive_job import ArchiveJob
from rocketlake.spark.jobs.archive.compaction import (
    MergePlan,
    compact_archive,
    plan_archive_compaction,
)
from rocketlake.spark.jobs.archive.drop import DropPlan, drop_days, plan_drop
from rocketlake.spark.jobs.archive.plan import ArchivePlan, ArchiveSettings, plan_archive
from rocketlake.spark.jobs.archive.report import ArchiveReport
from rocketlake.spark.jobs.archive.run import archive, run_archive
from rocketlake.spark.jobs.compact.plan import CompactPlan, plan_compact, plan_compact_here
from rocketlake.spark.jobs.compact.run import CompactReport, compact, run_compact
from rocketlake.spark.jobs.compact.settings import CompactSettings
from rocketlake.spark.jobs.dispatch.functions import DispatchRange
from rocketlake.spark.jobs.dispatch.job import (
    DispatchJob,
    DispatchPlan,
    DispatchReport,
    dispatch,
    plan_dispatch,
)
from rocketlake.spark.jobs.profile.plan import ProfilePlan, ProfileSettings, plan_profile
from rocketlake.spark.jobs.profile.report import Profile
from rocketlake.spark.jobs.profile.run import profile, run_profile
from rocketlake.spark.jobs.rebuild import (
    RebuildPlan,
    RebuildReport,
    plan_rebuild,
    rebuild,
    run_rebuild,
)
from rocketlake.spark.jobs.replay.plan import (
    ReplayPlan,
    ReplaySettings,
    plan_replay,
    plan_replay_here,
)
from rocketlake.spark.jobs.replay.run import ReplayReport, replay, run_replay
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.jobs.verify import VerifyReport, run_verify, verify
from rocketlake.upkeep.verify.verifier import VerifyPlan, plan_verify

__all__ = [
    "ArchiveJob",
    "ArchivePlan",
    "ArchiveReport",
    "ArchiveSettings",
    "CompactPlan",
    "CompactReport",
    "CompactSettings",
    "DispatchJob",
    "DispatchPlan",
    "DispatchRange",
    "DispatchReport",
    "DropPlan",
    "MergePlan",
    "Profile",
    "ProfilePlan",
    "ProfileSettings",
    "RebuildPlan",
    "RebuildReport",
    "ReplayPlan",
    "ReplayReport",
    "ReplaySettings",
    "Selection",
    "VerifyPlan",
    "VerifyReport",
    "archive",
    "compact",
    "compact_archive",
    "dispatch",
    "drop_days",
    "plan_archive",
    "plan_archive_compaction",
    "plan_compact",
    "plan_compact_here",
    "plan_dispatch",
    "plan_drop",
    "plan_profile",
    "plan_rebuild",
    "plan_replay",
    "plan_replay_here",
    "plan_verify",
    "profile",
    "rebuild",
    "replay",
    "run_archive",
    "run_compact",
    "run_profile",
    "run_rebuild",
    "run_replay",
    "run_verify",
    "verify",
]
