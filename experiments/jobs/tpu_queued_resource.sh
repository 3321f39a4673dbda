#!/bin/bash
# One job on a spot TPU VM, through queued resources, requested again after every
# preemption until the job is done:
#   PROJECT=... ZONE=us-west4-a IMAGE=... experiments/jobs/tpu_queued_resource.sh \
#     NAME gs://BUCKET/hopf/pubmed --dataset pubmed --model i-nip-mean
# It may be stopped and started again at any time with the same arguments: the TPU works
# on without it. It ends when scores.json exists (status 0), or when the job has failed in
# a way that a restart cannot repair (status 2).

set -euo pipefail

if [ $# -lt 2 ] || [ "${2#gs://}" = "$2" ]; then
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
: "${PROJECT:?Set PROJECT to your Google Cloud project}"
: "${ZONE:?Set ZONE, for example us-west4-a}"
: "${IMAGE:?Set IMAGE to the image built from experiments/jobs/Dockerfile}"
: "${ACCELERATOR:=v5litepod-1}"
: "${RUNTIME:=v2-alpha-tpuv5-lite}"
: "${POLL:=60}" # seconds

name=$1 workdir=${2%/}
shift 2
# Quoted for the shell of the TPU VM, whatever characters they have.
command=$(printf '%q ' --workdir "$workdir" --log-json - "$@")
image=$(printf '%q' "$IMAGE")
compiled=$(printf '%q' "JAX_COMPILATION_CACHE_DIR=$workdir/compiled")
failed=$(printf '%q' "$workdir/failed")

startup=$(mktemp)
trap 'rm -f "$startup"' EXIT
# On the TPU VM, at every boot. Docker passes SIGTERM on when the VM is shut down.
cat > "$startup" <<EOF
#!/bin/bash
until docker run --name hopf --rm --init --privileged --net host --stop-timeout 60 \\
  --env $compiled $image $command
do
  status=\$?
  if [ \$status -eq 2 ]; then
    echo "A restart cannot repair this: see the job's log." | gcloud storage cp - $failed
    break
  fi
  sleep 10
done
EOF

tpus() {
  gcloud compute tpus queued-resources "$@" --project "$PROJECT" --zone "$ZONE"
}

there() {
  gcloud storage ls "$workdir/$1" > /dev/null 2>&1
}

remove() {
  tpus delete "$name" --force --quiet
}

while true; do
  state=$(tpus describe "$name" --format 'value(state.state)' 2> /dev/null || true)
  if there scores.json || there failed; then
    if [ -n "$state" ]; then remove; fi
    if there scores.json; then exit 0; fi
    gcloud storage cat "$workdir/failed" >&2
    exit 2
  fi
  case $state in
    "")
      tpus create "$name" --node-id "$name" --spot --accelerator-type "$ACCELERATOR" \
        --runtime-version "$RUNTIME" --metadata-from-file "startup-script=$startup"
      ;;
    SUSPENDED | FAILED) remove ;; # Preempted, or never granted: requested again.
  esac
  echo "$(date -u +%FT%TZ) $name ${state:-requested}"
  sleep "$POLL"
done
