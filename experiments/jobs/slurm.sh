#!/bin/bash
# One job under Slurm, requeued until it is done:
#   sbatch experiments/jobs/slurm.sh --dataset pubmed --model i-nip-mean --workdir runs/pubmed
# Add what your cluster requires: --partition, --gres=gpu:1, --account.
#SBATCH --job-name=hopf
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --mem=8G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=TERM@120
# SIGTERM to the job step, and so to the job itself, two minutes before the time is up.

set -u
: "${PYTHON:=.venv/bin/python}"

srun "$PYTHON" -m experiments.job --log-json - "$@"
status=$?
case $status in
  0) ;;
  2) echo "Not requeued: a restart cannot repair this." >&2 ;;
  *)
    # Preempted, out of time or crashed. The limit ends a job that always crashes.
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "${MAX_RESTARTS:-100}" ]; then
      scontrol requeue "$SLURM_JOB_ID"
    fi
    ;;
esac
exit $status
