"""An HTTP service for a model on a graph that changes; needs `hopf-jax[serve]`."""

from hopf_jax.serving.journal import Journal, identify
from hopf_jax.serving.live import Live
from hopf_jax.serving.server import serve
from hopf_jax.serving.service import Limits, make_app
