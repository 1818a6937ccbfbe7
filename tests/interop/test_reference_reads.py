"""Random stores of four releases, whole and damaged: we read what RocketMQ reads.

ROCKETLAKE_SEED=17 .venv/bin/python -m pytest tests/interop -k agree       one seed again
ROCKETLAKE_SEEDS=0:200 .venv/bin/python -m pytest tests/interop -k agree   many
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
from random_specs import KINDS, Plan, make_plan, questions
from reference_store import VERSIONS, Line, ReferenceStore
from store_comparison import Circumstances, differences
from store_damage import DAMAGES

from rocketlake.metadata import offsets as offset_table
from rocketlake.store.offline import OfflineStore

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("reference")]

# Together they have every release, kind, damage and way to stop.
SEEDS = (92, 153, 208, 339, 431, 432, 528)


def chosen_seeds() -> list[object]:
    """The seeds of the environment, else the fixed ones."""
    if one := os.environ.get("ROCKETLAKE_SEED"):
        return [int(one)]
    if many := os.environ.get("ROCKETLAKE_SEEDS"):
        first, end = map(int, many.split(":"))
        return [pytest.param(seed, marks=pytest.mark.soak) for seed in range(first, end)]
    return [*SEEDS]


@pytest.mark.parametrize("seed", chosen_seeds())
def test_both_readers_agree(seed: int, tmp_path: Path):
    plan = make_plan(seed)
    release = ReferenceStore(plan.version)
    spec, whole = tmp_path / "spec.json", tmp_path / "whole"
    spec.write_text(json.dumps(plan.spec), encoding="utf-8")
    puts = release.write(spec, whole)
    stores = {whole: ""} | damaged_copies(plan, whole)
    queries = ask(plan, whole, puts, tmp_path / "queries.json")
    answers = release.dump([*stores], spec, queries)

    problems = [f"config tables: {text}" for text in tables_apart(plan, whole)]
    for store, done in stores.items():
        known = Circumstances(
            is_5x=plan.is_5x,
            is_clean=not plan.is_killed,
            damage=store.name if done else "",
            undamaged=answers[whole],
        )
        with OfflineStore(store) as view:
            found = differences(answers[store], view, known)
        problems += [f"{store.name} ({done}): {text}" for text in found]
    if problems:
        again = f"ROCKETLAKE_SEED={seed} .venv/bin/python -m pytest tests/interop -k agree"
        pytest.fail("\n".join([f"{plan}; again: {again}", *problems]), pytrace=False)
    assert answers[whole].messages


def damaged_copies(plan: Plan, whole: Path) -> dict[Path, str]:
    """A copy for each damage of the plan that can be done, and what was done."""
    copies = {}
    for name in plan.damages:
        copy = whole.with_name(name)
        shutil.copytree(whole, copy)
        done = DAMAGES[name](random.Random(f"{plan.seed} {name}"), copy)
        if done:
            copies[copy] = done
    return copies


def ask(plan: Plan, store: Path, puts: list[Line], path: Path) -> Path:
    """Write the questions about a store into a file."""
    times = sorted({put["storeTimestamp"] for put in puts if put.get("storeTimestamp")})
    with OfflineStore(store) as view:
        queues = [(key.topic, key.queue_id) for key in view.queues]
    path.write_text(json.dumps(questions(plan, queues, times)), encoding="utf-8")
    return path


def tables_apart(plan: Plan, store: Path) -> list[str]:
    """How the consumer offsets we read differ from those that were committed."""
    if "config" not in plan.spec:
        return []
    committed = [*plan.spec["config"]["offsets"], *plan.spec["config"]["laterOffsets"]]
    wanted: dict[tuple[str, str], dict[int, int]] = {}
    for one in committed:
        wanted.setdefault((one["group"], one["topic"]), {})[one["queueId"]] = one["offset"]
    table = offset_table.load(store / "config")
    found = {(one.group, one.topic): dict(one.offsets) for one in table.progress()} if table else {}
    return [] if found == wanted else [f"offsets {found}, committed {wanted}"]


def test_the_fixed_seeds_have_everything():
    plans = [make_plan(seed) for seed in SEEDS]
    assert {plan.version for plan in plans} == set(VERSIONS)
    assert {plan.is_killed for plan in plans} == {True, False}
    assert {kind for plan in plans for kind in plan.kinds} == set(KINDS)
    assert () in {plan.kinds for plan in plans}
    assert {damage for plan in plans for damage in plan.damages} == set(DAMAGES)
