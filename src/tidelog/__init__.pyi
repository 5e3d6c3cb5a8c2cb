"""The public names of tidelog and their homes: `__init__.py` reads this file, and so do editors and type checkers."""

from tidelog import errors as errors
from tidelog import testing as testing
from tidelog import types as types
from tidelog.algorithms.bc import BC as BC
from tidelog.algorithms.bcq import BCQ as BCQ
from tidelog.algorithms.discrete_bcq import DiscreteBCQ as DiscreteBCQ
from tidelog.algorithms.hyperparameters import field as field
from tidelog.algorithms.iql import IQL as IQL
from tidelog.algorithms.names import algorithm as algorithm
from tidelog.algorithms.off_policy_ppg import OffPolicyPPG as OffPolicyPPG
from tidelog.algorithms.ppg import PPG as PPG
from tidelog.algorithms.ppg import PPO as PPO
from tidelog.auto.settings import suggest as suggest
from tidelog.data.columns import Columns as Columns
from tidelog.data.log import Log as Log
from tidelog.data.read import read_log as read_log
from tidelog.data.relabel import relabel as relabel
from tidelog.errors import ConfigError as ConfigError
from tidelog.errors import LogError as LogError
from tidelog.errors import SpecError as SpecError
from tidelog.errors import TidelogError as TidelogError
from tidelog.ope.decide import Limits as Limits
from tidelog.ope.judge import judge as judge
from tidelog.ope.ledger import Ledger as Ledger
from tidelog.ope.plan import LoggingPlan as LoggingPlan
from tidelog.ope.plan import plan as plan
from tidelog.ope.policy_evidence import estimate as estimate
from tidelog.ope.rules import simple_rules as simple_rules
from tidelog.ope.verdict import Verdict as Verdict
from tidelog.policies.export import export as export
from tidelog.policies.policy import Policy as Policy
from tidelog.policies.policy import load_policy as load_policy
from tidelog.policies.rollout import collect as collect
from tidelog.policies.rollout import rollout as rollout
from tidelog.recommend.interactions import Interactions as Interactions
from tidelog.recommend.read import check as check
from tidelog.recommend.read import read_interactions as read_interactions
from tidelog.recommend.recommender_bcq import RecommenderBCQ as RecommenderBCQ
from tidelog.runtime.recommender import Histories as Histories
from tidelog.sweeps.plan import grid as grid
from tidelog.sweeps.plan import random_search as random_search
from tidelog.sweeps.sweep import Sweep as Sweep
from tidelog.sweeps.sweep import resume as resume
from tidelog.sweeps.sweep import sweep as sweep
from tidelog.training.fit import fit as fit
from tidelog.training.fit import refit as refit
from tidelog.training.learn import finetune as finetune
from tidelog.training.learn import learn as learn
from tidelog.training.learn import load_run as load_run
from tidelog.training.run import Run as Run

__version__: str
__all__: list[str]
