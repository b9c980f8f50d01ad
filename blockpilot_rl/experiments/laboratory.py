"""Trains agents for the views of a comparison: main, families, curves, groups, paper's table."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from blockpilot_rl.agents import Agent, make_agent
from blockpilot_rl.evaluation.choices import Choices
from blockpilot_rl.evaluation.judge import Judge
from blockpilot_rl.evaluation.oracle import best_fixed_by_mean
from blockpilot_rl.evaluation.results import Ablation, CurvePoint, Curves, LeftOut, PaperRow
from blockpilot_rl.experiments.ablation import ablation_rows, group_sets
from blockpilot_rl.experiments.curves import (
    FEWEST,
    curve_point,
    decision_counts,
    prompt_counts,
    some_prompts,
)
from blockpilot_rl.experiments.folds import Fold, judge_folds
from blockpilot_rl.experiments.judged_comparison import make_judge
from blockpilot_rl.experiments.paper_table import as_arms_of, paper_rows
from blockpilot_rl.experiments.trainings import (
    Each,
    Splits,
    Trained,
    Training,
    side_by_side,
)
from blockpilot_rl.sweeps.selection import window_arms
from blockpilot_rl.sweeps.table import Sweep

CLASSIFIER = "supervised"


@dataclass(frozen=True, eq=False)
class Laboratory:
    """Trains agents with several seeds and lets them choose.

    Attributes:
        algos: Algorithms to train.
        seeds: Seeds to train each with.
        state_groups: State groups they see.
        shuffle: Whether they learn from shuffled states.
        confidence: Level of the intervals.
        hyperparams: By algorithm, values that replace those of its YAML file.
        each: A `map` over the seeds.
        progress: Shows what is being trained.
        notes: What a reader of the results must know, in the order of its first coming.
    """

    algos: Sequence[str]
    seeds: Sequence[int]
    state_groups: Sequence[str]
    shuffle: bool
    confidence: float
    hyperparams: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    each: Each = map
    progress: Progress = field(default_factory=lambda: Progress(disable=True))
    notes: dict[str, None] = field(default_factory=dict)

    @contextmanager
    def opened(self, console: Console, jobs: int) -> Iterator[Laboratory]:
        """Train in this many processes, and show on a terminal what is being trained."""
        hidden = not console.is_terminal
        with (
            Progress(console=console, transient=True, disable=hidden) as progress,
            side_by_side(jobs) as each,
        ):
            yield dataclasses.replace(self, progress=progress, each=each)

    def agent(self, name: str) -> Agent[Any]:
        """Make an agent that has not learned, with the hyperparameters that are trained.

        Raises:
            BlockPilotError: If its name, a state group or a hyperparameter is unknown or invalid.
        """
        hyperparams = self.hyperparams.get(name)
        return make_agent(name, state_groups=self.state_groups, hyperparams=hyperparams)

    def train(
        self,
        name: str,
        splits: Splits,
        *,
        state_groups: Sequence[str] | None = None,
        prompts: int | None = None,
        decisions: int | None = None,
        baseline_prompts: int | None = None,
        what: str = "",
    ) -> Trained:
        """Train an agent with every seed and let it choose on the test rows.

        Args:
            name: The algorithm.
            splits: The rows.
            state_groups: State groups it sees; None for those of the laboratory.
            prompts: Number of training prompts to learn from, drawn anew for every seed; None for
                all.
            decisions: Steps to learn; None for what the algorithm takes by default.
            baseline_prompts: Number of training prompts to choose the size on that rewards are
                compared with; None for all.
            what: What it is trained for, to be shown.

        Raises:
            BlockPilotError: If the algorithm is unknown or the sweep lacks what it needs.
        """
        training = Training(
            name,
            splits,
            state_groups or self.state_groups,
            hyperparams=self.hyperparams.get(name, {}),
            prompts=prompts,
            decisions=decisions,
            baseline_prompts=baseline_prompts,
            shuffle=self.shuffle,
        )
        task = self.progress.add_task(f"{name} {what}", total=len(self.seeds))
        found = []
        for learned in self.each(training.learn, self.seeds):
            found.append(learned)
            # What was remarked of all prompts need not be said again of some.
            new = [note for note in learned.notes if note not in self.notes]
            self.notes.update(dict.fromkeys(f"{what}: {note}" if what else note for note in new))
            self.progress.advance(task)
        self.progress.remove_task(task)
        return Trained.of(found, splits.test)

    def main_view(self, splits: Splits) -> dict[str, Trained]:
        """Train every agent on all training prompts."""
        return {name: self.train(name, splits) for name in self.algos}

    def left_out(self, test: Sweep, folds: Sequence[Fold]) -> LeftOut:
        """Train every agent without each family, and judge it on that family.

        Args:
            test: All test rows.
            folds: The folds of all its families.
        """
        choices = {
            name: [
                self.train(
                    name,
                    Splits(fold.train, fold.validation, fold.test),
                    what=f"without {fold.family}",
                ).choices
                for fold in folds
            ]
            for name in self.algos
        }
        return judge_folds(test, folds, choices, confidence=self.confidence, seed=self.seeds[0])

    def learning_curve(self, splits: Splits, trained: dict[str, Trained]) -> Curves:
        """Train every agent on growing numbers of prompts; the best fixed size learns beside them.

        Args:
            splits: The rows.
            trained: The agents that learned from all prompts.
        """
        judge = self._judge(splits)
        *fewer, every = prompt_counts(splits.train)
        curves: Curves = {
            "fixed": [
                curve_point(judge, self._fixed(splits, count), count) for count in (*fewer, every)
            ]
        }
        for name in self.algos:
            curves[name] = [
                curve_point(
                    judge,
                    self.train(name, splits, prompts=count, what=f"on {count} prompts").choices,
                    count,
                )
                for count in fewer
            ]
            curves[name].append(curve_point(judge, trained[name].choices, every))
        return curves

    def budget_curves(
        self, splits: Splits, trained: dict[str, Trained], learning: Curves
    ) -> dict[str, Curves]:
        """Price what was learned in decodes, as `evaluation.curves` describes.

        Args:
            splits: The rows.
            trained: The agents that learned from all prompts.
            learning: The learning curve.
        """
        counts = {point.prompts for points in learning.values() for point in points}
        answers = {count: self._answers(splits, count) for count in counts}

        def priced(name: str, decodes: int) -> list[CurvePoint]:
            """With this number of decodes for each answer that was learned from."""
            validation = self.agent(name).learns_from_validation
            return [
                dataclasses.replace(point, decodes=decodes * answers[point.prompts][validation])
                for point in learning[name]
            ]

        decode = {
            name: self._bandit_curve(name, splits, trained[name])
            if name in self.algos and self.agent(name).decodes_per_decision
            else priced(name, len(splits.train.arms))
            for name in learning
        }
        return {"decode": decode, "replay": {name: priced(name, 1) for name in learning}}

    def ablation(self, name: str, splits: Splits, trained: dict[str, Trained]) -> Ablation:
        """Train an agent on each group of the recorded state, on all but each, and on all.

        Args:
            name: The algorithm.
            splits: The rows.
            trained: The agents that saw the groups of the laboratory.
        """
        sets = group_sets(splits.test.metadata.state)
        choices = {}
        for title, groups in sets.items():
            known = trained.get(name) if groups == tuple(self.state_groups) else None
            run = known or self.train(name, splits, state_groups=groups, what=f"sees {title}")
            choices[title] = run.choices
        return Ablation(name, ablation_rows(self._judge(splits), sets, choices))

    def paper_table(
        self,
        sweep: Sweep,
        main: Splits,
        trained: dict[str, Trained],
        best: str | None,
        radius: int,
    ) -> dict[str, dict[str, PaperRow]]:
        """Measure the paper's table at every temperature.

        The policies learn from rows of one temperature at a time.

        Args:
            sweep: The rows of all temperatures. Those with no training row or fewer than two test
                prompts are left out.
            main: The rows of the main view.
            trained: The agents that learned from the main view's.
            best: The agent to show as best policy.
            radius: Radius of the paper's window.
        """
        tables = {}
        for temperature in np.unique(sweep.temperatures):
            rows = sweep.select_rows(sweep.temperatures == temperature)
            prompts = rows.rows.groupby("split")["id"].nunique()
            if not prompts.get("train", 0) or prompts.get("test", 0) < 2:
                continue
            part = Splits.of(rows)
            reuse = trained if set(main.train.temperatures) == {temperature} else {}
            tables[f"{temperature:g}"] = self._paper_table(part, reuse, best, radius)
        return tables

    def _paper_table(
        self, splits: Splits, trained: dict[str, Trained], best: str | None, radius: int
    ) -> dict[str, PaperRow]:
        test, near = splits.test, window_arms(splits.test, radius)
        learned = {}
        if len(near) > 1:
            narrow = splits.each(lambda table: table.select_arms(near))
            chosen = self.train(CLASSIFIER, narrow, what="within the window").choices
            arms = as_arms_of(test, chosen.arms, near)
            sizes = ", ".join(map(str, near))
            learned["paper's classifier, window"] = (sizes, Choices(arms, chosen.policy_seconds))
        wanted = {"paper's classifier, all sizes": CLASSIFIER}
        if best is not None:
            wanted[f"best policy, {best}"] = best
        agents = {
            name: trained.get(name) or self.train(name, splits) for name in set(wanted.values())
        }
        learned |= {title: ("all", agents[name].choices) for title, name in wanted.items()}
        fixed = test.arms[best_fixed_by_mean(splits.train)]
        return paper_rows(self._judge(splits), fixed, learned)

    def _bandit_curve(self, name: str, splits: Splits, trained: Trained) -> list[CurvePoint]:
        """Let a bandit learner decide less often, and pay for each of its decisions.

        The size that its rewards are compared with has to be found, too: on a few prompts with all
        arms, or, where it decided as often as by default, on all.
        """
        judge, prompts = self._judge(splits), int(splits.train.rows["id"].nunique())
        agent = self.agent(name)
        fewer = decision_counts(agent.planned_timesteps)[:-1]
        runs = [
            self.train(
                name,
                splits,
                decisions=count,
                baseline_prompts=FEWEST,
                what=f"with {count} decisions",
            )
            for count in fewer
        ]
        # An algorithm that learns in rounds takes whole ones, so two budgets can be the same.
        by_decodes = {run.decodes: run for run in (*runs, trained)}
        return [
            curve_point(judge, run.choices, min(prompts, run.decisions), decodes)
            for decodes, run in sorted(by_decodes.items())
        ]

    def _answers(self, splits: Splits, prompts: int) -> dict[bool, int]:
        """Answers to this many training prompts, without and with those for validation beside them.

        They are the mean over the seeds, which draw the prompts.
        """
        rows = [
            (len(drawn.train), 0 if drawn.validation is None else len(drawn.validation))
            for drawn in (splits.some(prompts, seed) for seed in self.seeds)
        ]
        train, validation = np.mean(rows, axis=0)
        return {False: round(train), True: round(train + validation)}

    def _fixed(self, splits: Splits, prompts: int) -> Choices:
        """The sizes that are best on some of the training prompts."""
        best = [best_fixed_by_mean(some_prompts(splits.train, prompts, s)) for s in self.seeds]
        return Choices.free(np.repeat(np.array(best)[:, None], len(splits.test), axis=1))

    def _judge(self, splits: Splits) -> Judge:
        return make_judge(splits.train, splits.test, confidence=self.confidence, seed=self.seeds[0])
