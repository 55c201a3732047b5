"""Grading what agents do: scorers are declared in code, and grades are kept with the runs.

What is named here can be imported before the apps are ready. `service.ScoringService` grades stored runs.
"""

from pikku_storage.agents.scoring.grades import Grade
from pikku_storage.agents.scoring.judges import Judge, JudgeReply, JudgeRequest, judge
from pikku_storage.agents.scoring.scorers import Scorer, scorer, scorers
from pikku_storage.agents.scoring.turns import ToolUse, Turn

__all__ = [
    "Grade",
    "Judge",
    "JudgeReply",
    "JudgeRequest",
    "Scorer",
    "ToolUse",
    "Turn",
    "judge",
    "scorer",
    "scorers",
]
