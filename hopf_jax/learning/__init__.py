"""Training: loss, epochs, members, the stopping rule and the plan of a run."""

from hopf_jax.baselines import BASELINES
from hopf_jax.learning.convex import Solution, can_solve, can_vote, solve, voting_model
from hopf_jax.learning.epoch import (
    Program,
    evaluate_groups,
    first_state,
    train_groups,
    words_of_epoch,
)
from hopf_jax.learning.first_hop import FirstHop
from hopf_jax.learning.loss import (
    Inputs,
    Numbers,
    Objective,
    Params,
    label_weights,
    weights_of_counts,
    zero_totals,
)
from hopf_jax.learning.plan import Plan, make_plan
from hopf_jax.learning.population import (
    CannotJoinError,
    JointPopulation,
    Member,
    Population,
    check_same,
)
from hopf_jax.learning.run_state import (
    Progress,
    RunState,
    TeamState,
    identify,
)
from hopf_jax.learning.start import sizes_of, start_iteration
from hopf_jax.learning.stopping import Patience, as_good_as_any, likely_best
from hopf_jax.learning.teams import Team, make_team
from hopf_jax.learning.training import learn
from hopf_jax.learning.warning_signs import check_data, check_training
