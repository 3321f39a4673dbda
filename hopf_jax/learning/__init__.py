"""Training: loss, epochs, members, the stopping rule and the plan of a run."""

from hopf_jax.learning.epoch import evaluate_groups, first_state, train_groups
from hopf_jax.learning.first_hop import FirstHop
from hopf_jax.learning.loss import Inputs, Objective, Params, label_weights, zero_totals
from hopf_jax.learning.plan import Plan, make_plan
from hopf_jax.learning.population import (
    CannotJoinError,
    JointPopulation,
    Member,
    Population,
)
from hopf_jax.learning.run_state import (
    MemberState,
    Progress,
    RunState,
    State,
    execution_notes,
    identify,
)
from hopf_jax.learning.stopping import Patience, as_good_as_any
from hopf_jax.learning.training import learn

__all__ = [
    "CannotJoinError",
    "FirstHop",
    "Inputs",
    "JointPopulation",
    "Member",
    "MemberState",
    "Objective",
    "Params",
    "Patience",
    "Plan",
    "Population",
    "Progress",
    "RunState",
    "State",
    "as_good_as_any",
    "evaluate_groups",
    "execution_notes",
    "first_state",
    "identify",
    "label_weights",
    "learn",
    "make_plan",
    "train_groups",
    "zero_totals",
]
