"""The public names of the corrections and where each stands."""

from .configuration import StoredSettings as StoredSettings
from .configuration import read_config as read_config
from .configuration import reset_config as reset_config
from .configuration import write_config as write_config
from .gate import ActionGate as ActionGate
from .gate import gate_backend as gate_backend
from .interventions import Interventions as Interventions
from .nudges import AntiConvergence as AntiConvergence
from .nudges import RepetitionSuppression as RepetitionSuppression
from .nudges import guidance_block as guidance_block
from .records import Action as Action
from .records import GateDecision as GateDecision
from .records import Outcome as Outcome
from .statistics import CorrectionStatistics as CorrectionStatistics
from .statistics import correction_statistics as correction_statistics
